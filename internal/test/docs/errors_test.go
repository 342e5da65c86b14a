//go:build cgo

package docs_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"go/ast"
	"go/format"
	"go/parser"
	"go/token"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	clusterresolver "github.com/tpustrategy/tpustrategy/cluster_resolver"
	"github.com/tpustrategy/tpustrategy/input"
	"github.com/tpustrategy/tpustrategy/internal/test/plugintest"
	"github.com/tpustrategy/tpustrategy/internal/test/strategytest"
	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/pjrt"
	"github.com/tpustrategy/tpustrategy/pjrt/worker"
	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/tpu"
	"github.com/tpustrategy/tpustrategy/tpu/system"
)

// command starts this test binary as a worker.
var command []string

func TestMain(m *testing.M) {
	command = worker.Main()
	plugintest.PlainCode()
	if _, err := os.Stat("errors.md"); err != nil { // child processes start in the folder of the pages
		if err := os.Chdir("../../../docs"); err != nil {
			panic(err)
		}
	}
	os.Exit(m.Run())
}

var update = flag.Bool("update", false, "write what the errors print into errors.md")

// section matches an error of the page: a marker with the function's name, the code, and the
// message.
var section = regexp.MustCompile("(?s)(<!-- (\\w+) -->\n)```go\n(.*?)```\n\n```text\n(.*?)```\n")

// TestErrorsPrintWhatThePageSays runs the code of errors.md and compares the messages with the
// page. Only times may differ.
func TestErrorsPrintWhatThePageSays(t *testing.T) {
	ctx := t.Context()
	sys := plugintest.System(t, 8)
	strat := strategytest.On(t, sys, strategy.Options{Replicas: 2, LogicalDevices: 4})
	with := func(f func(context.Context, *strategy.TPUStrategy) error) func(*testing.T) error {
		return func(*testing.T) error { return f(ctx, strat) }
	}
	cases := map[string]func(*testing.T) error{
		"wrongShape": with(wrongShape), "impossibleSplit": with(impossibleSplit),
		"lossOfManyNumbers":  with(lossOfManyNumbers),
		"raggedBatch":        with(raggedBatch),
		"unequalRows":        with(unequalRows),
		"unreachedRule":      func(*testing.T) error { return unreachedRule(ctx, sys) },
		"indivisibleBatch":   func(*testing.T) error { return indivisibleBatch(strat) },
		"tooManyReplicas":    func(*testing.T) error { return tooManyReplicas(sys) },
		"compilerCrash":      func(*testing.T) error { return compilerCrash(ctx, sys, command) },
		"missingPlugin":      func(*testing.T) error { return missingPlugin(ctx) },
		"noSuchSlice":        func(*testing.T) error { return noSuchSlice() },
		"bucket":             func(*testing.T) error { return bucket() },
		"interruptedCompile": func(*testing.T) error { return interruptedCompile(strat) },
		"missingHost":        func(t *testing.T) error { return missingHost(ctx, fourHosts(t)) },
		"outOfMemory":        ahead,
	}
	page, err := os.ReadFile("errors.md")
	require.NoError(t, err)
	bodies := bodies(t)
	shown := map[string]bool{}
	written := section.ReplaceAllStringFunc(string(page), func(text string) string {
		m := section.FindStringSubmatch(text)
		name, run := m[2], cases[m[2]]
		shown[name] = true
		t.Run(name, func(t *testing.T) {
			require.NotNil(t, run, "no such case")
			err := run(t)
			require.Error(t, err)
			if claim, ok := claimed[name]; ok {
				assert.True(t, claim(err), "%T", err)
			}
			if !*update {
				assert.Equal(t, bodies[name], m[3], "the code")
				assert.Equal(t, timeless(strings.TrimSuffix(m[4], "\n")), timeless(err.Error()))
			}
			if timeless(m[4]) != timeless(err.Error()+"\n") {
				m[4] = err.Error() + "\n"
			}
			m[0] = fmt.Sprintf("%s```go\n%s```\n\n```text\n%s```\n", m[1], bodies[name], m[4])
		})
		return m[0]
	})
	for name := range cases {
		assert.True(t, shown[name], "%s is not on the page", name)
	}
	if *update && !t.Failed() {
		require.NoError(t, os.WriteFile("errors.md", []byte(written), 0o644))
	}
}

// claimed contains checks for the exported error types and values that the page documents.
var claimed = map[string]func(error) bool{
	"wrongShape":         is[*strategy.TraceError],
	"impossibleSplit":    is[*logical.Error],
	"unreachedRule":      is[*strategy.OptionError],
	"tooManyReplicas":    is[*strategy.OptionError],
	"raggedBatch":        is[*strategy.ArgumentError],
	"unequalRows":        is[*strategy.ArgumentError],
	"indivisibleBatch":   func(err error) bool { return errors.Is(err, input.ErrIndivisible) },
	"missingHost":        is[*system.StartError],
	"missingPlugin":      func(err error) bool { return is[*pjrt.FindError](err) && is[*system.StartError](err) },
	"noSuchSlice":        is[*tpu.AcceleratorError],
	"interruptedCompile": func(err error) bool { return errors.Is(err, context.Canceled) },
}

func is[E error](err error) bool {
	var target E
	return errors.As(err, &target)
}

// timeless removes durations, process IDs, and the plugin's log lines.
func timeless(text string) string {
	text = regexp.MustCompile(`(?m)^([IWE]0000 |WARNING: All log messages before ).*\n?`).ReplaceAllString(text, "")
	text = regexp.MustCompile(`F0000 [0-9:.]+ +[0-9]+`).ReplaceAllString(text, "F0000")
	return regexp.MustCompile(`took [0-9.a-zµ]+`).ReplaceAllString(text, "took a while")
}

// bodies returns the source text of the functions whose errors the page shows.
func bodies(t *testing.T) map[string]string {
	const name = "../internal/test/docs/errors_cases_test.go"
	source, err := os.ReadFile(name)
	require.NoError(t, err)
	files := token.NewFileSet()
	f, err := parser.ParseFile(files, name, source, parser.SkipObjectResolution)
	require.NoError(t, err)
	all := map[string]string{}
	for _, d := range f.Decls {
		if fn, ok := d.(*ast.FuncDecl); ok {
			body := source[files.Position(fn.Body.Lbrace).Offset+1 : files.Position(fn.Body.Rbrace).Offset]
			formatted, err := format.Source(body)
			require.NoError(t, err)
			all[fn.Name.Name] = strings.TrimSpace(strings.ReplaceAll(strings.ReplaceAll("\n"+string(formatted), "\n\t", "\n"),
				"\r", "")) + "\n"
		}
	}
	return all
}

// ahead runs outOfMemory in a child process with libtpu.
func ahead(t *testing.T) error {
	const mark = "printed: "
	if plugintest.InChild(t) {
		err := outOfMemory(t.Context())
		require.True(t, is[*strategy.MemoryError](err) && errors.Is(err, pjrt.ResourceExhausted), "%v", err)
		fmt.Println(mark + err.Error())
		return nil
	}
	path := plugintest.Path(t, "tpu")
	out, err := plugintest.Child(t, append(plugintest.TPUEnv(), "TPU_LOG_DIR=disabled", "TPU_LIBRARY_PATH="+path)...)
	if err != nil && !strings.Contains(out, mark) {
		return fmt.Errorf("%w: %s", err, out)
	}
	_, after, _ := strings.Cut(out, mark)
	line, _, _ := strings.Cut(after, "\n")
	return errors.New(line)
}

// fourHosts returns options for the first of four hosts. The TPU runtime waits for the other hosts,
// and the network refuses connections to one of them.
func fourHosts(t *testing.T) system.Options {
	dir := t.TempDir()
	c, so := filepath.Join(dir, "plugin.c"), filepath.Join(dir, "plugin.so")
	require.NoError(t, os.WriteFile(c, []byte(`
#include <stddef.h>
#include <unistd.h>
static struct { size_t size; void *ext; size_t vsize; void *vext; int major, minor; void *slots[120]; } table = { .size = 40 + 8 * 120, .vsize = 24, .minor = 81 };
static void *none(void *a) { return NULL; }
static void *client(void *a) { sleep(8); return &table; }
void *GetPjrtApi(void) {
  table.slots[0] = table.slots[1] = table.slots[2] = table.slots[3] = none;
  table.slots[10] = client;
  return &table;
}`), 0o644))
	out, err := exec.Command("cc", "-shared", "-fPIC", "-o", so, c).CombinedOutput()
	require.NoError(t, err, string(out))
	spec, err := clusterresolver.NewClusterSpec(map[string][]string{"worker": {"10.164.0.2:8470", "10.164.0.3:8470",
		"10.164.0.4:8470", "10.164.0.5:8470"}})
	require.NoError(t, err)
	cluster := clusterresolver.Cluster{Spec: spec, Task: clusterresolver.Task{Type: "worker"}}
	return system.Options{Plugin: so, Getenv: func(string) string { return "" }, Cluster: &cluster,
		Dial: func(_ context.Context, _, address string) (net.Conn, error) {
			if strings.HasPrefix(address, "10.164.0.4") {
				return nil, &net.OpError{Op: "dial", Net: "tcp", Addr: &net.TCPAddr{IP: net.IPv4(10, 164, 0, 4), Port: 8471},
					Err: syscall.ECONNREFUSED}
			}
			here, there := net.Pipe()
			return here, there.Close()
		}}
}
