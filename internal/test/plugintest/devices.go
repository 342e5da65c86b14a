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

// System opens a system with the given number of CPU devices. It is closed when the test ends.
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

// open counts the open systems. All clients of the CPU plugin in a process share its collectives,
// which distinguish launches only by their devices. A test that has read the loss of a step has
// waited for only one device. If another client starts a step while the other devices are still in
// a collective, the plugin terminates the process. System therefore waits briefly before it opens
// another system while one is open. Closed clients have no running collectives.
var open atomic.Int64

const breath = 50 * time.Millisecond

// Slice returns a TPU slice, such as "v5litepod-8", for ahead-of-time compilation with libtpu. It
// is closed when the test ends. Call Slice only in a process in which [TPUChild] returned true.
func Slice(t testing.TB, name string) *system.Slice {
	t.Helper()
	slice, err := system.Describe(context.Background(), name, system.DescribeOptions{Plugin: Path(t, "tpu")})
	if err != nil {
		t.Fatalf("plugintest: %v", err)
	}
	t.Cleanup(func() { closed(t, slice) })
	return slice
}

// Libtpu returns the path of libtpu. If libtpu is not installed, the test is skipped, even if
// plugins are required. It fails only if the environment has TPUSTRATEGY_AOT=1.
func Libtpu(t testing.TB) string {
	t.Helper()
	if os.Getenv("TPUSTRATEGY_AOT") != "1" {
		t.Setenv(Require, "")
	}
	return Path(t, "tpu")
}

// CUDA returns the path of the plugin that compiles for GPUs. The test is skipped unless the
// environment has TPUSTRATEGY_GPU_AOT=1, because the plugin has a size of half a gigabyte. `make
// test-gpu-aot` sets this variable and selects tests by the prefix of their names.
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

// Large skips a test that compiles for minutes, unless the environment has TPUSTRATEGY_AOT=1. It
// fails the test if `make test-aot` does not select the test by its name.
func Large(t testing.TB) {
	t.Helper()
	if !strings.HasPrefix(t.Name(), "TestAOTLarge") {
		t.Fatal("plugintest: make test-aot would not run it: call it TestAOTLarge...")
	}
	if os.Getenv("TPUSTRATEGY_AOT") != "1" {
		t.Skip("compiles for minutes; set TPUSTRATEGY_AOT=1")
	}
}

// TPUChild runs the test in a child process with libtpu, which only one process can load at a time.
// It fails the test if the child process fails. It returns true in the child process and false in
// the parent process:
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

// Within fails the test if f has not returned within limit. It does not stop f.
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
