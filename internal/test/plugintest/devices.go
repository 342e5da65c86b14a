package plugintest

import (
	"context"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tpustrategy/tpustrategy/tpu/system"
)

// System opens a system of so many CPU devices. It is closed when the test ends.
func System(t testing.TB, devices int) *system.System {
	t.Helper()
	path := Path(t, "cpu")
	if open.Load() > 0 {
		time.Sleep(breath)
	}
	sys, err := system.Open(context.Background(), system.Options{CPUDevices: devices, Plugin: path})
	if err != nil {
		t.Fatalf("plugintest: %v", err)
	}
	open.Add(1)
	t.Cleanup(func() {
		open.Add(-1)
		closed(t, sys)
	})
	return sys
}

// open counts the systems that are open. The collectives of the CPU plugin are one for all clients of a
// process, and tell launches apart by their devices only. Who has read the loss of a step has waited for
// one of its devices: while the others still add up, the first step of another client would meet them,
// and the plugin end the process. A closed client has waited for all. So a test that opens a second one
// beside its first lets that come to its end.
var open atomic.Int64

const breath = 50 * time.Millisecond

// Slice describes a TPU slice, such as "v5litepod-8", for compilation ahead of time with libtpu. It
// is closed when the test ends. Call it in a process where [TPUChild] returned true.
func Slice(t testing.TB, name string) *system.Slice {
	t.Helper()
	slice, err := system.Describe(context.Background(), name, system.DescribeOptions{Plugin: Path(t, "tpu")})
	if err != nil {
		t.Fatalf("plugintest: %v", err)
	}
	t.Cleanup(func() { closed(t, slice) })
	return slice
}

// Libtpu returns the path of libtpu. A test that lacks it is skipped, also where plugins are
// required: it fails only with TPUSTRATEGY_AOT=1 in the environment.
func Libtpu(t testing.TB) string {
	t.Helper()
	if os.Getenv("TPUSTRATEGY_AOT") != "1" {
		t.Setenv(Require, "")
	}
	return Path(t, "tpu")
}

// CUDA is the plugin that compiles for GPUs. Half a gigabyte is much for a test: it skips unless the
// environment has TPUSTRATEGY_GPU_AOT=1. The tests that `make test-gpu-aot` runs have GPU at the
// beginning of their names.
func CUDA(t testing.TB) string {
	t.Helper()
	if !strings.HasPrefix(t.Name(), "TestGPU") {
		t.Fatal("plugintest: make test-gpu-aot would not run it: call it TestGPU...")
	}
	if os.Getenv("TPUSTRATEGY_GPU_AOT") != "1" {
		t.Skip("needs the CUDA plugin; set TPUSTRATEGY_GPU_AOT=1")
	}
	return Path(t, "cuda")
}

// Large skips a test that compiles for minutes, unless the environment has TPUSTRATEGY_AOT=1. `make
// test-aot` runs the tests of these names and no others, so one of another name fails.
func Large(t testing.TB) {
	t.Helper()
	if !strings.HasPrefix(t.Name(), "TestAOTLarge") {
		t.Fatal("plugintest: make test-aot would not run it: call it TestAOTLarge...")
	}
	if os.Getenv("TPUSTRATEGY_AOT") != "1" {
		t.Skip("compiles for minutes; set TPUSTRATEGY_AOT=1")
	}
}

// TPUChild runs the test in a process of its own with libtpu, which one process loads at a time,
// and fails it if that process fails. It returns true in that process and false in the one that
// started it:
//
//	if !plugintest.TPUChild(t) {
//		return
//	}
func TPUChild(t testing.TB) bool {
	t.Helper()
	Libtpu(t)
	if InChild(t) {
		return true
	}
	out, err := Child(t, append(TPUEnv(), "TPU_LOG_DIR=disabled")...)
	if err != nil {
		t.Fatalf("plugintest: %v\n%s", err, out)
	}
	t.Log(out)
	return false
}

// Within fails the test if the function has not returned after the time; the function goes on.
func Within(t testing.TB, limit time.Duration, f func()) {
	t.Helper()
	done := make(chan struct{})
	go func() { defer close(done); f() }()
	select {
	case <-done:
	case <-time.After(limit):
		t.Fatalf("plugintest: no return in %v", limit)
	}
}

func closed(t testing.TB, x interface{ Close() error }) {
	t.Helper()
	if err := x.Close(); err != nil {
		t.Errorf("plugintest: %v", err)
	}
}
