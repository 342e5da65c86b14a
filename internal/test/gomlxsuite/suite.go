package gomlxsuite

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/tpustrategy/tpustrategy/internal/test/gomlxoverlay"
)

const (
	upstream = "github.com/gomlx/gomlx/"
	// registers is the package that registers this module's backend.
	registers = "github.com/tpustrategy/tpustrategy/gomlx"
	// installed is the path of the plugin of GoMLX's XLA backend, relative to the home folder. If
	// the file does not exist, GoMLX downloads the plugin, even in tests that do not use it.
	installed = ".local/lib/go-xla/pjrt_c_api_cpu_v0.114.0_plugin.so"
)

// Backend is a backend to test: a name for tables and a value of GOMLX_BACKEND.
type Backend struct{ Name, Config string }

// Suite contains the test programs of GoMLX in a folder.
type Suite struct {
	overlay     *gomlxoverlay.Overlay
	dir, plugin string
	// tool is the path of test2json. It is run directly, because the go command needs another home
	// folder than the tests.
	tool     string
	packages []string
	files    int
}

// Prepare writes the build files into dir. module is the folder of this module, and plugin is the
// path of the CPU plugin. If dir is reused, the next Build is fast, because Go's build cache
// depends on the folder of the sources.
func Prepare(ctx context.Context, dir, module, plugin string) (*Suite, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	for _, name := range []string{"programs", "home/" + path.Dir(installed)} {
		if err := os.MkdirAll(filepath.Join(dir, name), 0o755); err != nil {
			return nil, err
		}
	}
	link := filepath.Join(dir, "home", installed)
	if err := os.Remove(link); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	if err := os.Symlink(plugin, link); err != nil {
		return nil, err
	}
	tool, err := exec.CommandContext(ctx, "go", "tool", "-n", "test2json").Output()
	if err != nil {
		return nil, fmt.Errorf("gomlxsuite: go tool test2json: %w", err)
	}
	s := &Suite{dir: dir, plugin: plugin, tool: strings.TrimSpace(string(tool))}
	// Prepare an overlay to list the packages, and then one with a file in each package.
	if s.overlay, err = gomlxoverlay.Prepare(ctx, dir, gomlxoverlay.Options{Module: module}); err != nil {
		return nil, err
	}
	added, err := s.list(ctx)
	if err != nil {
		return nil, err
	}
	s.overlay, err = gomlxoverlay.Prepare(ctx, dir, gomlxoverlay.Options{Module: module, Add: added})
	return s, err
}

// Version returns the version of GoMLX.
func (s *Suite) Version() string { return s.overlay.Version }

// Packages returns the folders of the packages with tests in the GoMLX module.
func (s *Suite) Packages() []string { return s.packages }

// Files returns the number of test files in the packages.
func (s *Suite) Files() int { return s.files }

// list finds the packages with tests and returns a file for each package that registers the
// backend. The file belongs to the external test package, because the backend itself imports some
// of the packages.
func (s *Suite) list(ctx context.Context) (added map[string]string, err error) {
	const form = "{{$n := len .TestGoFiles}}{{$x := len .XTestGoFiles}}{{if or $n $x}}{{.ImportPath}} {{.Name}} {{$n}} " +
		"{{$x}}{{end}}"
	out, err := s.command(ctx, "list", "-f", form, upstream+"cmd/...", upstream+"core/...", upstream+"internal/...",
		upstream+"ml/...", upstream+"support/...", upstream+"ui/...")
	if err != nil {
		return nil, err
	}
	added = map[string]string{}
	for line := range strings.Lines(out) {
		var path, name string
		var in, beside int
		if _, err := fmt.Sscan(line, &path, &name, &in, &beside); err != nil {
			return nil, fmt.Errorf("gomlxsuite: go list wrote %q: %w", line, err)
		}
		p := strings.TrimPrefix(path, upstream)
		s.packages, s.files = append(s.packages, p), s.files+in+beside
		added[p+"/tpustrategy_test.go"] = "package " + name + "_test\n\nimport _ \"" + registers + "\"\n"
	}
	return added, nil
}

// Build compiles the test programs of packages.
func (s *Suite) Build(ctx context.Context, packages ...string) error {
	for _, p := range packages {
		if _, err := s.command(ctx, "test", "-vet=off", "-c", "-o", s.program(p), upstream+p); err != nil {
			return err
		}
	}
	return nil
}

// program returns the path of a package's test program.
func (s *Suite) program(p string) string {
	return filepath.Join(s.dir, "programs", strings.ReplaceAll(p, "/", "_")+".test")
}

// Run runs a package's tests on a backend, in the folder of the package's sources. Failed tests are
// not an error. If the program crashes or exceeds the time limit, Run runs the remaining tests in a
// new process.
func (s *Suite) Run(ctx context.Context, p string, b Backend, limit time.Duration) (Results, error) {
	all := Results{Tests: map[string]Test{}}
	for {
		r, err := s.once(ctx, p, b, limit, all.tops())
		if err != nil {
			return all, err
		}
		progress := len(r.Tests) > 0
		maps.Copy(all.Tests, r.Tests)
		all.Took += r.Took
		all.Stderr += r.Stderr
		if r.ended || !progress {
			all.Stderr = tail(all.Stderr)
			return all, nil
		}
	}
}

// once runs the tests that are not in done.
func (s *Suite) once(ctx context.Context, p string, b Backend, limit time.Duration, done []string) (Results, error) {
	// The test program's own timeout reports the test that hangs. The process timeout is for hangs
	// in C code.
	ctx, cancel := context.WithTimeout(ctx, limit+10*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, s.tool, "-t", "-p", p, s.program(p), "-test.v=test2json", "-test.timeout="+
		limit.String())
	if len(done) > 0 {
		cmd.Args = append(cmd.Args, "-test.skip=^("+strings.Join(done, "|")+")$")
	}
	cmd.Dir = filepath.Join(s.overlay.GoMLX, filepath.FromSlash(p))
	cmd.Env = append(os.Environ(), "HOME="+filepath.Join(s.dir, "home"), "GOMLX_BACKEND="+b.Config,
		"TPUSTRATEGY_CPU_PLUGIN="+s.plugin, "TF_CPP_MIN_LOG_LEVEL=3")
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	cmd.WaitDelay = 5 * time.Second
	// Cancellation must kill the test program together with test2json.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) && !errors.Is(err, exec.ErrWaitDelay) {
		return Results{}, fmt.Errorf("gomlxsuite: %s: %w", p, err)
	}
	return read(&stdout, b, tail(stderr.String()))
}

// tail returns the last part of a text, short enough for a message.
func tail(text string) string {
	const most = 4000
	if len(text) > most {
		return "..." + text[len(text)-most:]
	}
	return text
}

func (s *Suite) command(ctx context.Context, verb string, arguments ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "go", append(append([]string{verb}, s.overlay.Flags()...), arguments...)...)
	cmd.Dir = s.overlay.Module
	cmd.Env = append(os.Environ(), "GOWORK=off")
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("gomlxsuite: go %s %s: %w\n%s", verb, strings.Join(arguments, " "), err, stderr.String())
	}
	return string(out), nil
}
