package gomlxsuite

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/internal/plugintest"
)

// rules split each variable along its largest dimension over the devices of a replica, and, where it
// has another dimension to split, over the replicas.
const rules = `{"rules": [
	{"variable": "", "largest": "logical", "optional": true},
	{"variable": "", "largest": "replica", "optional": true}
]}`

// backends are GoMLX's own, the first two, and ours. The rules are written into a folder.
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

// prepared is the suite in a folder that stays, so that a second run builds nothing anew. One
// process at a time has it, until the test ends.
func prepared(t *testing.T) (*Suite, string) {
	t.Helper()
	plugin := plugintest.Path(t, "cpu")
	cache, err := os.UserCacheDir()
	if err != nil {
		cache = t.TempDir()
	}
	module, err := filepath.Abs("../..")
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

// TestASample is one quick package with training in it, on each form of 8 devices.
func TestASample(t *testing.T) {
	s, plugin := prepared(t)
	const sample = "ml/train"
	require.NoError(t, s.Build(t.Context(), sample))
	for _, b := range backends(t, plugin, s.dir)[3:] {
		r, err := s.Run(t.Context(), sample, b, 2*time.Minute)
		require.NoError(t, err)
		assert.Greater(t, r.Counts()[Pass], 5, "%s: %s", b.Name, r.Stderr)
		for _, name := range r.Names() {
			if o := r.Of(name); o != Pass && o != Skip {
				t.Errorf("%s: %s: %s: %s\n%s", b.Name, name, o, r.Tests[name].Said, r.Stderr)
			}
		}
	}
}

// TestSuites runs all packages on all backends and writes the table into the page that
// TPUSTRATEGY_GOMLX_SUITES names. What came of each run is kept: with TPUSTRATEGY_GOMLX_ONLY, a
// regular expression, only the runs whose name, as in "8x1/core/graph", it matches are done again,
// and the page is written if all others were done before.
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
	if !whole {
		t.Skip("not all runs were done: the page stays as it is")
	}
	for _, r := range idle {
		t.Errorf("differences.tsv: no test differs as this line says: %+v", r)
	}
	old, err := os.ReadFile(page)
	require.NoError(t, err)
	written, err := Replaced(string(old), Table(runs, all, found, reasons))
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(page, []byte(written), 0o644))
}

// at is the text where it is wanted.
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
