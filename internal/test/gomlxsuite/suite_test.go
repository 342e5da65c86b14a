package gomlxsuite

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/internal/test/gomlxoverlay"
	"github.com/tpustrategy/tpustrategy/internal/test/plugintest"
)

// rules splits the largest dimension of each variable over the logical devices and, if possible,
// another dimension over the replicas.
const rules = `{"rules": [
	{"variable": "", "largest": "logical", "optional": true},
	{"variable": "", "largest": "replica", "optional": true}
]}`

// backends returns GoMLX's two backends and the configurations of this module's backend. It writes
// the rules into a folder.
func backends(t *testing.T, plugin, dir string) []Backend {
	t.Helper()
	file := filepath.Join(dir, "rules.json")
	require.NoError(t, os.WriteFile(file, []byte(rules), 0o644))
	return []Backend{
		{"go", "go"},
		{"xla", "xla:" + plugin},
		{"1x1", "tpustrategy:devices=1"},
		{"8x1", "tpustrategy:devices=8"},
		{"4x2", "tpustrategy:devices=8,logical=2"},
		{"4x2 rules", "tpustrategy:devices=8,logical=2,rules=" + file},
	}
}

// prepared returns a suite in a persistent folder, so that a second run builds nothing again. It
// holds a file lock until the test ends.
func prepared(t *testing.T) (*Suite, string) {
	t.Helper()
	plugin := plugintest.Path(t, "cpu")
	cache, err := os.UserCacheDir()
	if err != nil {
		cache = t.TempDir()
	}
	module, err := filepath.Abs("../../..")
	require.NoError(t, err)
	dir := filepath.Join(cache, "tpustrategy", "gomlx-suites", fmt.Sprintf("%x", sha256.Sum256([]byte(module)))[:16])
	require.NoError(t, os.MkdirAll(dir, 0o755))
	lock, err := os.Create(filepath.Join(dir, "lock"))
	require.NoError(t, err)
	t.Cleanup(func() { lock.Close() })
	require.NoError(t, syscall.Flock(int(lock.Fd()), syscall.LOCK_EX))
	s, err := Prepare(t.Context(), dir, module, plugin)
	require.NoError(t, err)
	return s, plugin
}

// TestTheTestsAfterACrashRun uses a shell script as the test program. The script crashes in its
// second test.
func TestTheTestsAfterACrashRun(t *testing.T) {
	tool, err := exec.Command("go", "tool", "-n", "test2json").Output()
	require.NoError(t, err)
	dir := t.TempDir()
	s := &Suite{overlay: &gomlxoverlay.Overlay{GoMLX: dir}, dir: dir, tool: strings.TrimSpace(string(tool))}
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "programs"), 0o755))
	require.NoError(t, os.Mkdir(filepath.Join(dir, "p"), 0o755))
	require.NoError(t, os.WriteFile(s.program("p"), []byte(`#!/bin/sh
case "$*" in
*TestB*) echo "=== RUN   TestC"; echo "--- PASS: TestC (0.00s)"; echo PASS;;
*) echo "=== RUN   TestA"; echo "--- PASS: TestA (0.00s)"; echo "=== RUN   TestB"; echo "$GOMLX_BACKEND crashed" >&2; exit 2;;
esac
`), 0o755))
	r, err := s.Run(t.Context(), "p", Backend{"ours", "tpustrategy"}, time.Minute)
	require.NoError(t, err)
	assert.Equal(t, []string{"TestA", "TestB", "TestC"}, r.Names())
	assert.Equal(t, []Outcome{Pass, Fail, Pass}, []Outcome{r.Of("TestA"), r.Of("TestB"), r.Of("TestC")})
	assert.Contains(t, r.Tests["TestB"].Said, "tpustrategy crashed")
}

// TestASample runs two fast packages, one with layers and one with training, on the
// backends with 8 devices.
func TestASample(t *testing.T) {
	s, plugin := prepared(t)
	for _, sample := range []struct {
		name  string
		tests int
	}{{"ml/layers/norm", 3}, {"ml/train", 7}} {
		require.NoError(t, s.Build(t.Context(), sample.name))
		for _, b := range backends(t, plugin, s.dir)[3:] {
			r, err := s.Run(t.Context(), sample.name, b, 2*time.Minute)
			require.NoError(t, err)
			assert.Equal(t, map[Outcome]int{Pass: sample.tests}, r.Counts(), "%s on %s: %s", sample.name, b.Name, r.Stderr)
			for _, name := range r.Names() {
				if r.Of(name) != Pass {
					t.Errorf("%s on %s: %s: %s\n%s", sample.name, b.Name, name, r.Of(name), r.Tests[name].Said)
				}
			}
		}
	}
}

// TestSuites runs all packages on all backends and writes the table into the page that
// TPUSTRATEGY_GOMLX_SUITES names. The results of each run are cached. TPUSTRATEGY_GOMLX_ONLY is a
// regular expression. If it is set, only the runs with a matching name, such as 8x1/core/graph, are
// repeated. The page is not changed if results are missing that the page contains.
func TestSuites(t *testing.T) {
	page := os.Getenv("TPUSTRATEGY_GOMLX_SUITES")
	if page == "" {
		t.Skip("TPUSTRATEGY_GOMLX_SUITES is not set: make test-gomlx")
	}
	only, err := regexp.Compile(os.Getenv("TPUSTRATEGY_GOMLX_ONLY"))
	require.NoError(t, err)
	s, plugin := prepared(t)
	packages, whole := s.Packages(), true
	t.Logf("GoMLX %s: %d packages, %d test files", s.Version(), len(packages), s.Files())
	all := backends(t, plugin, s.dir)
	runs := Runs{}
	for _, p := range packages {
		built := false
		for _, b := range all {
			kept := filepath.Join(s.dir, "results", b.Name, strings.ReplaceAll(p, "/", "_")+".json")
			r, ok := resultsOf(t, kept)
			if only.MatchString(b.Name + "/" + p) {
				if !built {
					require.NoError(t, s.Build(t.Context(), p))
					built = true
				}
				r, err = s.Run(t.Context(), p, b, 10*time.Minute)
				require.NoError(t, err)
				keep(t, kept, r)
				t.Logf("%s/%s: %s in %.1fs", b.Name, p, counted(r.Counts()), r.Took.Seconds())
			} else if !ok {
				whole = false
				continue
			}
			if runs[b.Name] == nil {
				runs[b.Name] = map[string]Results{}
			}
			runs[b.Name][p] = r
		}
	}
	ours := []string{}
	for _, b := range all[2:] {
		ours = append(ours, b.Name)
	}
	text, err := os.ReadFile("differences.tsv")
	require.NoError(t, err)
	reasons, err := Reasons(string(text))
	require.NoError(t, err)
	found := runs.Differences("xla", ours)
	differences, idle := Unexplained(found, reasons)
	for _, d := range differences {
		r := runs[d.Backend][d.Package]
		t.Errorf("%s\n%s%s", d, r.Tests[d.Test].Said, at(r.Stderr, r.broke()))
	}
	for _, r := range idle {
		if !whole {
			break // A missing run may have this difference.
		}
		t.Errorf("differences.tsv: no test differs as this line says: %+v", r)
	}
	old, err := os.ReadFile(page)
	require.NoError(t, err)
	written, err := Replaced(string(old), Table(runs, packages, all, found, reasons))
	require.NoError(t, err)
	if Poorer(written, string(old)) {
		t.Skip("the page has runs that were not done here: it stays as it is")
	}
	require.NoError(t, os.WriteFile(page, []byte(written), 0o644))
}

// at returns the text if wanted is true.
func at(text string, wanted bool) string {
	if !wanted {
		return ""
	}
	return text
}

func resultsOf(t *testing.T, path string) (r Results, ok bool) {
	t.Helper()
	data, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return r, false
	}
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(data, &r))
	return r, true
}

func keep(t *testing.T, path string, r Results) {
	t.Helper()
	require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
	data, err := json.MarshalIndent(r, "", "\t")
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(path, data, 0o644))
}
