package main

import (
	"errors"
	"flag"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/tpustrategy/tpustrategy/internal/pins"
	"github.com/tpustrategy/tpustrategy/internal/test/plugintest"
	"github.com/tpustrategy/tpustrategy/pjrt/worker"
)

var update = flag.Bool("update", false, "write the scripts' expected outputs anew")

// workerCommand starts this program as a worker.
var workerCommand []string

func TestMain(m *testing.M) {
	workerCommand = worker.Main()
	testscript.Main(m, map[string]func(){"tpustrategy": func() { os.Exit(runMain()) }})
}

// The scripts run the command line as its users do. Those for a plugin find it as $PLUGIN.
func TestScripts(t *testing.T) {
	t.Run("none", func(t *testing.T) { scripts(t, "testdata/script", "") })
	t.Run("cpu", func(t *testing.T) { scripts(t, "testdata/script_cpu", plugintest.Path(t, "cpu")) })
}

func TestAOTScripts(t *testing.T) { scripts(t, "testdata/script_tpu", plugintest.Libtpu(t)) }

func TestGPUScripts(t *testing.T) { scripts(t, "testdata/script_gpu", plugintest.CUDA(t)) }

func scripts(t *testing.T, dir, plugin string) {
	t.Helper()
	testscript.Run(t, testscript.Params{
		Dir:           dir,
		UpdateScripts: *update,
		Setup: func(env *testscript.Env) error {
			env.Setenv("HOME", env.WorkDir)
			env.Setenv("XDG_CACHE_HOME", filepath.Join(env.WorkDir, "cache"))
			if plugin != "" {
				env.Setenv("PLUGIN", plugin)
			}
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"exitcode":       exitCode,
			"abortingplugin": abortingPlugin,
			"cutshort":       cutShort,
		},
	})
}

// exitCode runs a command and compares its exit code: exitcode 3 tpustrategy doctor.
func exitCode(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exitcode code command args...")
	}
	err := ts.Exec(args[1], args[2:]...)
	got := "0"
	if exit, ok := err.(*exec.ExitError); ok {
		got = exitText(exit.ExitCode())
	} else if err != nil {
		ts.Fatalf("%v", err)
	}
	if got != args[0] {
		ts.Fatalf("exit code %s, want %s", got, args[0])
	}
}

func exitText(code int) string { return string(rune('0' + code)) }

// abortingPlugin builds a plugin that ends the process: abortingplugin FILE.
func abortingPlugin(ts *testscript.TestScript, _ bool, args []string) {
	if _, err := exec.LookPath("gcc"); err != nil {
		ts.Fatalf("this script needs gcc: %v", err)
	}
	source := ts.MkAbs("plugin.c")
	ts.Check(os.WriteFile(source, []byte(`#include <stdio.h>
#include <signal.h>
#include <stdlib.h>
const void *GetPjrtApi(void) {
  fprintf(stderr, "first line\nCheck failed: this plugin aborts\n");
  if (getenv("PLUGIN_IS_KILLED")) raise(SIGKILL);
  abort();
}
`), 0o644))
	out, err := exec.Command("gcc", "-shared", "-fPIC", "-o", ts.MkAbs(args[0]), source).CombinedOutput()
	if err != nil {
		ts.Fatalf("gcc: %v\n%s", err, out)
	}
}

// cutShort installs the first bytes of $PLUGIN in the script's cache: cutshort BYTES.
func cutShort(ts *testscript.TestScript, _ bool, args []string) {
	pin, err := pins.Find("cpu", runtime.GOARCH)
	ts.Check(err)
	length, err := strconv.ParseInt(args[0], 10, 64)
	ts.Check(err)
	from, err := os.Open(ts.Getenv("PLUGIN"))
	ts.Check(err)
	defer from.Close()
	path := pin.LibraryPath(ts.Getenv("XDG_CACHE_HOME"))
	ts.Check(os.MkdirAll(filepath.Dir(path), 0o755))
	to, err := os.Create(path)
	ts.Check(err)
	_, err = io.CopyN(to, from, length)
	ts.Check(errors.Join(err, to.Close()))
}
