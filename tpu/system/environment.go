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

// envVar is an environment variable that libtpu reads when it is loaded.
type envVar struct{ name, value string }

// envWithoutTPU returns the variables for libtpu on a host without a TPU. Without them, libtpu
// queries the cloud's metadata server for minutes, and takes a lock that prevents other processes
// from loading it. libtpu requires the accelerator type but does not use it to describe a topology.
func envWithoutTPU(a tpu.Accelerator) []envVar {
	return []envVar{
		{skipMetadata, "1"},
		{"TPU_ACCELERATOR_TYPE", a.Type()},
		{"TPU_WORKER_HOSTNAMES", "localhost"},
		{"TPU_WORKER_ID", "0"},
		{"ALLOW_MULTIPLE_LIBTPU_LOAD", "1"},
	}
}

// skipMetadata is the variable that disables libtpu's queries to the metadata server.
const skipMetadata = "TPU_SKIP_MDS_QUERY"

// libtpuArgs is the variable with the flags that libtpu reads when it is loaded. launchBarrier is a
// flag that JAX sets on every TPU. It makes the programs of a slice start together at a barrier
// that reports delayed hosts.
const (
	libtpuArgs    = "LIBTPU_INIT_ARGS"
	launchBarrier = "--xla_tpu_use_enhanced_launch_barrier"
)

// environmentMu prevents changes to the environment while another goroutine loads libtpu.
var environmentMu sync.Mutex

// prepareTPUHost prepares a host with a TPU before libtpu is loaded: it sets environment variables
// for libtpu and logs unsuitable settings of the host. Only this method and prepareHostWithoutTPU
// write to the environment; see docs/rationale.md.
func (s *starter) prepareTPUHost(host hostPaths) error {
	if s.opts.CPUDevices > 0 || !host.hasTPU() {
		return nil
	}
	for _, f := range hostfacts.ReadFacts(host.root).Findings() {
		s.logger.Warn("system: host setting", "finding", f.String())
	}
	if s.opts.KeepEnvironment {
		return nil
	}
	environmentMu.Lock()
	defer environmentMu.Unlock()
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

// prepareHostWithoutTPU sets the environment variables that libtpu requires on a host without a
// TPU. Variables that are already set are not changed.
func prepareHostWithoutTPU(host hostPaths, a tpu.Accelerator, opts DescribeOptions) error {
	if host.hasTPU() {
		return nil
	}
	if opts.KeepEnvironment {
		if os.Getenv(skipMetadata) == "" {
			return fmt.Errorf("%w, and TPU_ACCELERATOR_TYPE=%s", ErrMetadataQuery, a.Type()) // continues the list of variables
		}
		return nil
	}
	environmentMu.Lock()
	defer environmentMu.Unlock()
	var set []any
	for _, s := range envWithoutTPU(a) {
		if os.Getenv(s.name) != "" {
			continue
		}
		if err := os.Setenv(s.name, s.value); err != nil {
			return &errkind.Fault{Op: "set", Subject: s.name, Err: err, Hint: "set it before the program starts"}
		}
		set = append(set, slog.String(s.name, s.value))
	}
	if set != nil && opts.Logger != nil {
		opts.Logger.Info("system: set for libtpu because this host has no TPU", set...)
	}
	return nil
}
