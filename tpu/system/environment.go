package system

import (
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/internal/hostfacts"
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

// libtpuArgs is the variable with the flags that libtpu reads as it is loaded, and launchBarrier the
// flag that JAX adds to it on every TPU: programs of a slice then start together by a barrier that
// tells of a host that is late.
const (
	libtpuArgs    = "LIBTPU_INIT_ARGS"
	launchBarrier = "--xla_tpu_use_enhanced_launch_barrier"
)

// settingUp keeps one goroutine from changing the environment while another has libtpu loaded: it
// holds no state.
var settingUp sync.Mutex

// prepareTPU sets what libtpu reads on a machine with a TPU, before it is loaded, and says what the
// machine lacks. With prepare it is the one place where this module writes to the environment, see
// docs/rationale.md.
func (s *starter) prepareTPU(host hostFiles) error {
	if s.opts.CPUDevices > 0 || !host.mayHaveTPU() {
		return nil
	}
	for _, f := range hostfacts.Read(host.root).Findings() {
		s.logger.Warn("system: this machine", "finding", f.Text())
	}
	if s.opts.KeepEnvironment {
		return nil
	}
	settingUp.Lock()
	defer settingUp.Unlock()
	args := os.Getenv(libtpuArgs)
	if strings.Contains(args, launchBarrier) {
		return nil
	}
	args = strings.TrimSpace(args + " " + launchBarrier + "=true")
	if err := os.Setenv(libtpuArgs, args); err != nil {
		return &errkind.Fault{Op: "set", Subject: libtpuArgs, Err: err, Hint: "set it before the program starts"}
	}
	s.logger.Info("system: set for libtpu", slog.String(libtpuArgs, args))
	return nil
}

// prepare sets what libtpu reads and nobody has set, on a machine without a TPU.
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
