package gomlxsuite

import (
	"bufio"
	"encoding/json"
	"io"
	"maps"
	"slices"
	"strings"
	"time"
)

// Outcome is what came of a test.
type Outcome string

// The outcomes. A test in whose midst the program ends has failed, and is Broken where the program
// had to be stopped. None is that of a test that did not begin.
const (
	Pass   Outcome = "pass"
	Fail   Outcome = "fail"
	Skip   Outcome = "skip"
	Broken Outcome = "broken"
	None   Outcome = "none"
)

// Test is a test with what came of it. Said is what it printed, unless it passed.
type Test struct {
	Outcome Outcome
	Said    string
}

// Results are the tests of a package by name, those with subtests too. A subtest that is named after
// the backend has the name BACKEND.
type Results struct {
	Tests map[string]Test
	// Took is the time of all tests. Stderr is the end of what the program wrote there, and of what
	// no test printed.
	Took   time.Duration
	Stderr string
	// ended says that the program came to its end.
	ended bool
}

// Names are the names of the tests, sorted.
func (r Results) Names() []string { return slices.Sorted(maps.Keys(r.Tests)) }

// Of is the outcome of a test.
func (r Results) Of(name string) Outcome {
	if t, ok := r.Tests[name]; ok {
		return t.Outcome
	}
	return None
}

// Counts are the numbers of tests with no subtests by their outcome. A test that has subtests on one
// backend only is counted there by those.
func (r Results) Counts() map[Outcome]int {
	counts := map[Outcome]int{}
	names := r.Names()
	for _, name := range names {
		// Slashes sort before what else may follow a name, but for a few signs.
		if !slices.ContainsFunc(names, func(of string) bool { return strings.HasPrefix(of, name+"/") }) {
			counts[r.Tests[name].Outcome]++
		}
	}
	return counts
}

// tops are the names of the tests that are no subtests.
func (r Results) tops() (names []string) {
	for _, name := range r.Names() {
		if !strings.Contains(name, "/") {
			names = append(names, name)
		}
	}
	return names
}

// broke says whether the program ended in the midst.
func (r Results) broke() bool {
	return slices.ContainsFunc(slices.Collect(maps.Values(r.Tests)), func(t Test) bool { return t.Outcome == Broken })
}

// event is what `go test -json` prints a line of.
type event struct {
	Action, Test, Output string
	Elapsed              float64
}

// read reads events. Tests without an end are Broken.
func read(from io.Reader, b Backend, stderr string) (Results, error) {
	r := Results{Tests: map[string]Test{}}
	said, others := map[string]*strings.Builder{}, &strings.Builder{}
	lines := bufio.NewReader(from)
	for {
		line, err := lines.ReadBytes('\n')
		if err != nil && err != io.EOF {
			return r, err
		}
		var e event
		if len(line) > 0 {
			if err := json.Unmarshal(line, &e); err != nil {
				return r, err
			}
			r.add(e, b, said, others)
		}
		if err == io.EOF {
			break
		}
	}
	for name, t := range r.Tests {
		if t.Outcome != Pass && said[name] != nil {
			t.Said = tail(said[name].String())
			r.Tests[name] = t
		}
	}
	r.Stderr = stderr + tail(others.String())
	return r, nil
}

func (r *Results) add(e event, b Backend, said map[string]*strings.Builder, others *strings.Builder) {
	if e.Test == "" {
		switch e.Action {
		case "output":
			others.WriteString(e.Output)
			// A program's last line; a panic has none.
			r.ended = r.ended || e.Output == "PASS\n" || e.Output == "FAIL\n"
		case "pass", "fail":
			r.Took = time.Duration(e.Elapsed * float64(time.Second))
		}
		return
	}
	name := neutral(e.Test, b.Config)
	switch e.Action {
	case "run":
		r.Tests[name] = Test{Outcome: Broken}
	case "output":
		if said[name] == nil {
			said[name] = &strings.Builder{}
		}
		said[name].WriteString(e.Output)
	case "pass", "fail", "skip":
		r.Tests[name] = Test{Outcome: Outcome(e.Action)}
	}
}

// neutral is a test's name with BACKEND in place of the backend's configuration.
func neutral(name, config string) string {
	parts := strings.Split(name+"/", "/"+strings.ReplaceAll(config, " ", "_")+"/")
	return strings.TrimSuffix(strings.Join(parts, "/BACKEND/"), "/")
}
