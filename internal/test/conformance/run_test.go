package conformance

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/internal/test/conformance/valuecases"
)

var goldens = flag.String("goldens", "../../../testdata/goldens", "directory of the case files")

// golden is a case of strategy_semantics.json.
type golden struct {
	Section  string         `json:"section"`
	Name     string         `json:"name"`
	Strategy string         `json:"strategy"`
	Inputs   map[string]any `json:"inputs"`
	Outputs  any            `json:"outputs"`
	raw      json.RawMessage
	// used contains the inputs that the runner has read.
	used map[string]bool
}

// has reports whether the case has an input, and marks the input as used.
func (g golden) has(name string) bool {
	_, ok := g.Inputs[name]
	if g.used != nil {
		g.used[name] = true
	}
	return ok
}

// in returns an input, or nil.
func (g golden) in(name string) any {
	g.has(name)
	return g.Inputs[name]
}

// tally counts the outcomes of a file.
type tally struct {
	pass, fail, notApplicable, unmapped, leftOut int
	sections                                     map[string]*tally
}

func (s *tally) section(name string) *tally {
	if s.sections == nil {
		s.sections = map[string]*tally{}
	}
	if s.sections[name] == nil {
		s.sections[name] = &tally{}
	}
	return s.sections[name]
}

// caseRun is the subtest of a case.
type caseRun struct {
	*testing.T
	form, section, name, strategy string
	unmappedWhy                   string
	// replicas is the number of replicas of the case.
	replicas int
	leftOut  int
	skipped  bool
	// ulp is the relative tolerance for half-precision numbers. TensorFlow rounds them more than
	// once.
	ulp float64
	// refused is the error of the creation of the replicas' values. It ends the case.
	refused failure
}

type refused struct{}

// skip ends a case that does not apply. reason is one of the listed reasons.
func (c *caseRun) skip(reason string) {
	c.skipped = true
	c.Skip(reason)
}

// unmapped ends a case that no runner supports.
func (c *caseRun) unmapped(format string, args ...any) {
	c.unmappedWhy = fmt.Sprintf(format, args...)
	c.Fatalf("unmapped: %s", c.unmappedWhy)
}

// run runs a case as a subtest and counts its outcome. form selects the exceptions for the case.
func (s *tally) run(t *testing.T, form, section, name, strategy string, body func(c *caseRun)) {
	c := &caseRun{form: form, section: section, name: name, strategy: strategy}
	ok := t.Run(strings.Join([]string{section, name, strategy}, "/"), func(t *testing.T) {
		c.T = t
		if reason, ok := notApplicable(form, section, name, ""); ok {
			c.skip(reason)
		}
		defer func() { // a panic fails only this case
			if p := recover(); p != nil {
				t.Errorf("panic: %v", p)
			}
		}()
		body(c)
	})
	for _, s := range []*tally{s, s.section(section)} {
		switch {
		case c.skipped:
			s.notApplicable++
		case c.unmappedWhy != "":
			s.unmapped++
		case ok:
			s.pass++
		default:
			s.fail++
		}
		s.leftOut += c.leftOut
	}
}

func TestConformance(t *testing.T) { runFiles(t, *goldens) }

// TestFurtherCases runs a sample of the cases that the programs in generate recorded from
// TensorFlow.
func TestFurtherCases(t *testing.T) {
	runFiles(t, filepath.Join("..", "..", "..", "testdata", "goldens", "more"))
}

// TestDerivedCases runs cases that were derived by hand from TensorFlow's documentation. They cover
// forms for which there are no recorded cases.
func TestDerivedCases(t *testing.T) { runFiles(t, filepath.Join("testdata", "derived")) }

// runValues runs the cases of a file that do not require devices.
func runValues(t *testing.T, s *tally, form string, data []byte, read func([]byte) ([]valuecases.Case, error)) {
	cases, err := read(data)
	require.NoError(t, err)
	for _, x := range cases {
		s.run(t, form, x.Section, x.Name, "-", func(c *caseRun) {
			x.Run(&valuecases.T{T: c.T, NotApplicable: func(why valuecases.Why) { c.skip(valueReasons[why]) },
				Unmapped: c.unmapped})
		})
	}
}

func runFiles(t *testing.T, dir string) {
	files, err := filepath.Glob(filepath.Join(dir, "*.json"))
	require.NoError(t, err)
	require.NotEmpty(t, files, "no case files in %s", dir)
	// A case may refer to a topology of another file.
	var known [][]byte
	for _, path := range append(files, filepath.Join("..", "..", "..", "testdata", "goldens", "device_assignment.json")) {
		data, err := os.ReadFile(path)
		require.NoError(t, err)
		known = append(known, data)
	}
	w := newWorld(t)
	var summary []string
	for _, path := range files {
		data, err := os.ReadFile(path)
		require.NoError(t, err)
		name := strings.TrimSuffix(filepath.Base(path), ".json")
		var s tally
		t.Run(name, func(t *testing.T) {
			f, err := readFile(data)
			require.NoError(t, err)
			for _, form := range slices.Sorted(keysOf(f.cases)) {
				cases, err := f.of(form)
				require.NoError(t, err)
				switch form {
				case "device_assignment":
					runValues(t, &s, form, cases, func(data []byte) ([]valuecases.Case, error) {
						return valuecases.Assignments(data,
							known...)
					})
				case "sharding":
					runValues(t, &s, form, cases, valuecases.Shardings)
				case "tpu_graph":
					runGraphs(t, &s, cases, w)
				default:
					runSemantics(t, &s, cases, w)
				}
			}
		})
		total := s.pass + s.fail + s.notApplicable + s.unmapped
		summary = append(summary,
			fmt.Sprintf("%-24s %4d cases: %4d pass, %d fail, %d not applicable (%.1f %%), %d unmapped; %d fields left out",
				name, total, s.pass, s.fail, s.notApplicable, 100*float64(s.notApplicable)/max(float64(total), 1), s.unmapped,
				s.leftOut))
		if testing.Verbose() {
			for _, section := range slices.Sorted(keysOf(s.sections)) {
				x := s.sections[section]
				summary = append(summary, fmt.Sprintf("    %-22s %4d pass, %d fail, %d not applicable, %d unmapped", section,
					x.pass, x.fail, x.notApplicable, x.unmapped))
			}
		}
		if limit := 0.15; w.sys != nil && float64(s.notApplicable) > limit*float64(total) {
			t.Errorf("%s: %d of %d cases are not applicable, more than %.0f %%", name, s.notApplicable, total, 100*limit)
		}
	}
	fmt.Println(strings.Join(summary, "\n"))
}

func keysOf[V any](m map[string]V) func(yield func(string) bool) {
	return func(yield func(string) bool) {
		for k := range m {
			if !yield(k) {
				return
			}
		}
	}
}

// decode decodes JSON without converting numbers, because the dtypes of 1 and 1.0 differ.
func decode(t testing.TB, data []byte, into any) {
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	require.NoError(t, d.Decode(into))
}
