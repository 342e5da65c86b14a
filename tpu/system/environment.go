package system

import (
	"fmt"
	"log/slog"
	"os"
	"sync"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/tpu"
)

// setting is a variable that libtpu reads as it is loaded.
type setting struct{ name, value string }

// withoutTPU are the variables by which libtpu does not look for a TPU: without them it asks the
// metadata server of a cloud for minutes which machine this is, and keeps other processes from
// loading it by a lock that is for machines with a TPU. The accelerator type is read and not used:
// a topology is described by its name.
func withoutTPU(a tpu.Accelerator) []setting {
	return []setting{
		{skipMetadata, "1"},
		{"TPU_ACCELERATOR_TYPE", a.Type()},
		{"TPU_WORKER_HOSTNAMES", "localhost"},
		{"TPU_WORKER_ID", "0"},
		{"ALLOW_MULTIPLE_LIBTPU_LOAD", "1"},
	}
}

// skipMetadata is the variable without which libtpu asks the metadata server.
const skipMetadata = "TPU_SKIP_MDS_QUERY"

// settingUp keeps one goroutine from changing the environment while another has libtpu loaded: it
// holds no state.
var settingUp sync.Mutex

// prepare sets what libtpu reads and nobody has set, on a machine without a TPU. It is the one
// place where this module writes to the environment, see docs/rationale.md.
func prepare(host hostFiles, a tpu.Accelerator, opts DescribeOptions) error {
	if host.mayHaveTPU() {
		return nil
	}
	if opts.KeepEnvironment {
		if os.Getenv(skipMetadata) == "" {
			return fmt.Errorf("%w, and TPU_ACCELERATOR_TYPE=%s", ErrMetadataQuery, a.Type()) // its advice goes on
		}
		return nil
	}
	settingUp.Lock()
	defer settingUp.Unlock()
	var set []any
	for _, s := range withoutTPU(a) {
		if os.Getenv(s.name) != "" {
			continue
		}
		if err := os.Setenv(s.name, s.value); err != nil {
			return &errkind.Fault{Op: "set", Subject: s.name, Err: err, Hint: "set it before the program starts"}
		}
		set = append(set, slog.String(s.name, s.value))
	}
	if set != nil && opts.Logger != nil {
		opts.Logger.Info("system: no TPU on this machine: libtpu is told so by its environment", set...)
	}
	return nil
}
