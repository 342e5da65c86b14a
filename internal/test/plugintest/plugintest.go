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

// Require is an environment variable. If it is 1, tests fail if a plugin is missing. Otherwise they
// are skipped.
const Require = "TPUSTRATEGY_REQUIRE_PLUGIN"

// Path returns the path of the plugin of the given kind, "cpu" or "tpu", as [pjrt.FindPlugin] finds
// it. If the plugin is missing, the test is skipped, or fails if the environment has
// TPUSTRATEGY_REQUIRE_PLUGIN=1. If the plugin is not published for this platform, the test is
// always skipped.
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

// Open opens the plugin of the given kind. Open libtpu only in a process that runs a single test,
// because it reads its environment once; see [TPUEnv].
func Open(t testing.TB, kind string) *pjrt.Plugin {
	t.Helper()
	p, err := pjrt.Open(Path(t, kind))
	if err != nil {
		t.Fatalf("plugintest: %v", err)
	}
	return p
}

// CPU returns a client of the CPU plugin with the given number of devices. It is closed when the
// test ends. The test fails if a buffer or a program is still open then.
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

// Header returns the path of the official pjrt_c_api.h of the CPU plugin.
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

// TPUEnv returns the environment variables that libtpu requires to work without a TPU. They must be
// set before the process starts.
func TPUEnv() []string {
	// ALLOW_MULTIPLE_LIBTPU_LOAD allows other processes to load libtpu at the same time. XLA_FLAGS
	// is cleared because libtpu does not have the CPU options that PlainCode sets.
	return []string{"TPU_SKIP_MDS_QUERY=1", "TPU_ACCELERATOR_TYPE=v5litepod-8", "TPU_WORKER_HOSTNAMES=localhost",
		"TPU_WORKER_ID=0", "ALLOW_MULTIPLE_LIBTPU_LOAD=1", "XLA_FLAGS="}
}

// Child runs the same test again in a child process with additional environment variables. It
// returns the output and the error of the process. [InChild] returns true in the child process. Use
// Child for tests that may crash the process and for libtpu.
func Child(t testing.TB, env ...string) (string, error) {
	t.Helper()
	out, _, err := ChildWithin(t, context.Background(), env...)
	return out, err
}

// ChildWithin is like [Child], but kills the process when ctx ends and returns the error of ctx.
// The duration is the processor time of the process.
func ChildWithin(t testing.TB, ctx context.Context, env ...string) (string, time.Duration, error) {
	t.Helper()
	cmd := exec.CommandContext(ctx, os.Args[0], "-test.run=^"+strings.ReplaceAll(t.Name(), "/", "$/^")+"$", "-test.v",
		"-test.count=1")
	cmd.Env = append(append(os.Environ(), env...), childMark+"="+t.Name())
	cmd.WaitDelay = 5 * time.Second // for processes that the child started and did not stop
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

// InChild reports whether [Child] started this process for this test.
func InChild(t testing.TB) bool { return os.Getenv(childMark) == t.Name() }

func missing(t testing.TB, why string) {
	t.Helper()
	if os.Getenv(Require) == "1" {
		t.Fatalf("plugintest: %s=1, and %s", Require, why)
	}
	t.Skipf("plugintest: %s", why)
}

// Headers returns the paths of the official pjrt_c_api.h files of the CPU plugin and of the go-xla
// module, by source: "plugin" and "go-xla".
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

// CompileC checks that C source compiles with headers from dirs. If not, it fails the test with the
// compiler's messages.
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
