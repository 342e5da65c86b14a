package plugintest

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/tpustrategy/tpustrategy/internal/pins"
	"github.com/tpustrategy/tpustrategy/pjrt"
)

// Require is the environment variable that, set to 1, turns a skip for a
// missing plugin into a failure.
const Require = "TPUSTRATEGY_REQUIRE_PLUGIN"

// Path is the plugin library of a kind, "cpu" or "tpu", found as [pjrt.FindPlugin]
// does. Without one the test is skipped with the reason, or fails if the
// environment sets TPUSTRATEGY_REQUIRE_PLUGIN=1. A plugin that is not published
// for this kind of machine is a skip either way.
func Path(t testing.TB, kind string) string {
	t.Helper()
	cache, err := os.UserCacheDir()
	if err != nil {
		cache = ""
	}
	found, err := pjrt.FindPlugin(pjrt.FindOptions{Kind: kind, Getenv: os.Getenv, GOARCH: runtime.GOARCH,
		UserCacheDir: cache,
		Stat:         func(name string) (fs.FileInfo, error) { return os.Stat(name) }})
	if err != nil {
		if _, unpublished := pins.Find(kind, runtime.GOARCH); unpublished != nil {
			t.Skipf("plugintest: %v", unpublished)
		}
		missing(t, err.Error())
		return ""
	}
	return found.Path
}

// Open is the opened plugin of a kind. Do not open libtpu in a process that
// does more than one test's work: it reads its environment once; see TPUEnv.
func Open(t testing.TB, kind string) *pjrt.Plugin {
	t.Helper()
	p, err := pjrt.Open(Path(t, kind))
	if err != nil {
		t.Fatalf("plugintest: %v", err)
	}
	return p
}

// CPU is a client of the CPU plugin with so many devices, closed when the test
// ends; a test that still holds something open in it fails.
func CPU(t testing.TB, devices int) *pjrt.Client {
	t.Helper()
	c, err := Open(t, "cpu").NewClient(t.Context(),
		pjrt.ClientOptions{Options: map[string]any{"cpu_device_count": devices}})
	if err != nil {
		t.Fatalf("plugintest: %v", err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Errorf("plugintest: %v", err)
		}
	})
	return c
}

// Header is the official pjrt_c_api.h that came with the CPU plugin.
func Header(t testing.TB) string {
	t.Helper()
	cache, err := os.UserCacheDir()
	if err != nil {
		missing(t, err.Error())
	}
	pin, err := pins.Find("cpu", runtime.GOARCH)
	if err != nil {
		missing(t, err.Error())
	}
	path := pin.HeaderPath(cache)
	if _, err := os.Stat(path); err != nil {
		missing(t, err.Error())
	}
	return path
}

// TPUEnv is what libtpu needs in its environment to work without a TPU, to be
// set before the process starts.
func TPUEnv() []string {
	// ALLOW_MULTIPLE_LIBTPU_LOAD lets other processes have libtpu loaded at the same time, and what
	// PlainCode asks of the CPU's compiler is unknown to libtpu.
	return []string{"TPU_SKIP_MDS_QUERY=1", "TPU_ACCELERATOR_TYPE=v5litepod-8", "TPU_WORKER_HOSTNAMES=localhost",
		"TPU_WORKER_ID=0", "ALLOW_MULTIPLE_LIBTPU_LOAD=1", "XLA_FLAGS="}
}

// Child runs the same test again in a process of its own, with extra
// environment, and answers its output; the error is the process's. In the child
// InChild is true. It is for what would take the process down, and for libtpu.
func Child(t testing.TB, env ...string) (string, error) {
	t.Helper()
	out, _, err := ChildWithin(t, context.Background(), env...)
	return out, err
}

// ChildWithin is Child until ctx ends, when the process is killed and the error is
// ctx's. The duration is the processor time that the process took.
func ChildWithin(t testing.TB, ctx context.Context, env ...string) (string, time.Duration, error) {
	t.Helper()
	cmd := exec.CommandContext(ctx, os.Args[0], "-test.run=^"+strings.ReplaceAll(t.Name(), "/", "$/^")+"$", "-test.v",
		"-test.count=1")
	cmd.Env = append(append(os.Environ(), env...), childMark+"="+t.Name())
	cmd.WaitDelay = 5 * time.Second // for what the process started and left behind
	out, err := cmd.CombinedOutput()
	if ctx.Err() != nil {
		err = ctx.Err()
	}
	processor := time.Duration(0)
	if cmd.ProcessState != nil {
		processor = cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
	}
	return string(out), processor, err
}

const childMark = "TPUSTRATEGY_TEST_CHILD"

// InChild says whether this process was started by Child for this test.
func InChild(t testing.TB) bool { return os.Getenv(childMark) == t.Name() }

func missing(t testing.TB, why string) {
	t.Helper()
	if os.Getenv(Require) == "1" {
		t.Fatalf("plugintest: %s=1, and %s", Require, why)
	}
	t.Skipf("plugintest: %s", why)
}

// Headers are the official pjrt_c_api.h files at hand: the CPU plugin's own, if
// installed, and the one inside the go-xla module.
func Headers(t testing.TB) map[string]string {
	t.Helper()
	out := map[string]string{"plugin": Header(t)}
	dir, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "github.com/gomlx/go-xla").Output()
	if err != nil || strings.TrimSpace(string(dir)) == "" {
		missing(t, fmt.Sprintf("go list cannot tell where go-xla is: %v", err))
	}
	out["go-xla"] = filepath.Join(strings.TrimSpace(string(dir)), "pjrt", "pjrt_c_api.h")
	return out
}

// CompileC checks that C source compiles, with headers searched in dirs; it
// fails the test with the compiler's words otherwise.
func CompileC(t testing.TB, source string, dirs ...string) {
	t.Helper()
	args := []string{"-std=c11", "-Wall", "-fsyntax-only", "-x", "c", "-"}
	for _, d := range dirs {
		args = append(args, "-I"+d)
	}
	cmd := exec.Command("cc", args...)
	cmd.Stdin = strings.NewReader(source)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("plugintest: cc: %v\n%s", err, out)
	}
}
