package aot_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/internal/test/plugintest"
	"github.com/tpustrategy/tpustrategy/pjrt/worker"
)

func TestMain(m *testing.M) {
	worker.Main() // an example starts this binary as its compiler
	code := m.Run()
	if path, err := user(); err == nil {
		_ = os.RemoveAll(filepath.Dir(path))
	}
	os.Exit(code)
}

// user returns the path of a user's program, which is built once.
var user = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "aot-user-")
	if err != nil {
		return "", err
	}
	out, err := exec.Command("go", "build", "-ldflags=-w", "-o", filepath.Join(dir, "user"),
		"./testdata/user").CombinedOutput()
	if err != nil {
		err = errors.Join(fmt.Errorf("%w\n%s", err, out), os.RemoveAll(dir))
	}
	return filepath.Join(dir, "user"), err
})

func userProgram(t *testing.T) string {
	t.Helper()
	path, err := user()
	require.NoError(t, err)
	return path
}

// The scripts run a program like its users. $PLUGIN is the path of the plugin.
func TestScripts(t *testing.T) {
	t.Run("none", func(t *testing.T) { scripts(t, "testdata/script", "") })
	t.Run("cpu", func(t *testing.T) { scripts(t, "testdata/script_cpu", plugintest.Path(t, "cpu")) })
}

func TestAOTScripts(t *testing.T) {
	scripts(t, "testdata/script_tpu", plugintest.Libtpu(t))
}

func scripts(t *testing.T, dir, plugin string) {
	t.Helper()
	program := userProgram(t)
	testscript.Run(t, testscript.Params{
		Dir: dir,
		Setup: func(env *testscript.Env) error {
			env.Setenv("HOME", env.WorkDir)
			env.Setenv("XDG_CACHE_HOME", filepath.Join(env.WorkDir, "cache"))
			env.Setenv("PATH", filepath.Dir(program)+string(filepath.ListSeparator)+env.Getenv("PATH"))
			env.Setenv("PLUGIN", plugin)
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){"exitcode": exitCode},
	})
}

// exitCode runs a command and compares its exit code: exitcode 3 user -topology cpu:2.
func exitCode(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exitcode code command args...")
	}
	err := ts.Exec(args[1], args[2:]...)
	got := "0"
	if exit, ok := err.(*exec.ExitError); ok {
		got = strings.TrimPrefix(exit.ProcessState.String(), "exit status ")
	} else if err != nil {
		ts.Fatalf("%v", err)
	}
	if got != args[0] {
		ts.Fatalf("exit code %s, want %s", got, args[0])
	}
}
