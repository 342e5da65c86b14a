package upstream_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestEachPatchFixesItsDefect implements `make test-upstream-patches`. For each patch, the patch's
// test must fail on the original module. With the patch, the patch's test and the tests of the
// module must pass. TPUSTRATEGY_UPSTREAM is the path of the CPU plugin. The test does not download
// anything.
func TestEachPatchFixesItsDefect(t *testing.T) {
	plugin := os.Getenv("TPUSTRATEGY_UPSTREAM")
	if plugin == "" {
		t.Skip("it takes minutes: run make test-upstream-patches")
	}
	work := map[string]string{} // folder of the copy of each module
	patches := readPatches(t)
	environment := offline(t, plugin)
	for _, p := range patches {
		if work[p.Module] == "" {
			work[p.Module] = checkout(t, p.Module)
		}
		t.Run(p.Name, func(t *testing.T) {
			m := module{p.Module, work[p.Module], modfile(t, p.Module, work[p.Module]), environment}
			test := filepath.Join(m.folder, filepath.FromSlash(p.Test))
			source, err := os.ReadFile(filepath.Join(p.Name, "test.go.txt"))
			require.NoError(t, err)
			require.NoError(t, os.WriteFile(test, source, 0o644))
			defer os.Remove(test)
			tested := "./" + filepath.ToSlash(filepath.Dir(p.Test))

			out, err := m.test(t, []string{tested}, "-run", "^("+p.Run+")$")
			require.Error(t, err, "the test passes without the patch")
			require.Regexp(t, `--- FAIL|\[build failed\]|panic: `, out)
			t.Logf("without the patch: %s", firstFault(out))

			m.git(t, p, "apply")
			defer m.git(t, p, "apply", "--reverse")
			out, err = m.test(t, []string{tested}, "-run", "^("+p.Run+")$", "-v")
			require.NoError(t, err, "with the patch: %s", out)
			require.Contains(t, out, "--- PASS", "no test ran")
			out, err = m.test(t, p.Packages, "-skip", p.Skip)
			require.NoError(t, err, "the own tests of %s: %s", p.Packages, out)
		})
	}
}

// checkout copies the sources of a module, because the module cache is read-only.
func checkout(t *testing.T, name string) string {
	_, from := pinned(t, name)
	to := t.TempDir()
	require.NoError(t, os.CopyFS(to, os.DirFS(from)))
	return to
}

// modfile writes a copy of this module's go.mod that replaces the module with its copy. The
// module's own go.mod requires modules that may not be downloaded.
func modfile(t *testing.T, name, folder string) string {
	at := t.TempDir()
	for _, file := range []string{"go.mod", "go.sum"} {
		text, err := os.ReadFile(filepath.Join(root, file))
		require.NoError(t, err)
		if file == "go.mod" {
			text = append(text, "\nreplace "+name+" => "+folder+"\n"...)
		}
		require.NoError(t, os.WriteFile(filepath.Join(at, file), text, 0o644))
	}
	return filepath.Join(at, "go.mod")
}

// offline returns the environment of the tests. GoMLX's tests install a plugin if there is none in
// the home directory, so the home directory contains the given plugin.
func offline(t *testing.T, plugin string) []string {
	home := t.TempDir()
	installed := filepath.Join(home, ".local", "lib", "go-xla", "pjrt_c_api_cpu_v0.114.0_plugin.so")
	require.NoError(t, os.MkdirAll(filepath.Dir(installed), 0o755))
	require.NoError(t, os.Symlink(plugin, installed))
	environment := os.Environ()
	for _, name := range []string{"GOCACHE", "GOMODCACHE", "GOPATH"} {
		value, err := exec.Command("go", "env", name).Output()
		require.NoError(t, err)
		environment = append(environment, name+"="+strings.TrimSpace(string(value)))
	}
	return append(environment, "HOME="+home, "XDG_CACHE_HOME="+filepath.Join(home, "cache"), "GOPROXY=off", "GOFLAGS=",
		"GOMLX_BACKEND=xla:"+plugin, "TF_CPP_MIN_LOG_LEVEL=2")
}

// module is a copy of a module's sources.
type module struct {
	name, folder, modfile string
	environment           []string
}

// test runs the tests of packages. Their paths are relative to the module.
func (m module) test(t *testing.T, packages []string, flags ...string) (string, error) {
	arguments := append([]string{"test", "-modfile=" + m.modfile, "-count=1", "-timeout=10m"}, flags...)
	for _, p := range packages {
		arguments = append(arguments, m.name+strings.TrimPrefix(p, "."))
	}
	command := exec.CommandContext(t.Context(), "go", arguments...)
	command.Dir, command.Env, command.WaitDelay = root, m.environment, 10*time.Second
	if m.name == "github.com/gomlx/compute" { // selects the backend in Go
		command.Env = append(command.Env, "GOMLX_BACKEND=go")
	}
	out, err := command.CombinedOutput()
	return string(out), err
}

// git runs a git command on the diff of a patch.
func (m module) git(t *testing.T, p patch, arguments ...string) {
	diff, err := filepath.Abs(filepath.Join(p.Name, "change.patch"))
	require.NoError(t, err)
	command := exec.Command("git", append(arguments, diff)...)
	command.Dir = m.folder
	out, err := command.CombinedOutput()
	require.NoError(t, err, string(out))
}

// firstFault returns the first line of a test's output that describes a failure.
func firstFault(out string) string {
	for line := range strings.Lines(out) {
		for _, word := range []string{"panic: ", "_test.go:", "cannot use"} {
			if strings.Contains(line, word) {
				return strings.TrimSpace(line)
			}
		}
	}
	return out
}
