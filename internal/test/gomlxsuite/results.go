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

// Outcome is the outcome of a test.
type Outcome string

// The outcomes. If the program crashes, the running test has the outcome Fail. If the program is
// killed, the running test has the outcome Broken. A test that did not start has the outcome None.
const (
	Pass   Outcome = "pass"
	Fail   Outcome = "fail"
	Skip   Outcome = "skip"
	Broken Outcome = "broken"
	None   Outcome = "none"
)

// Test is the result of a test. Said is its output, unless the test passed.
type Test struct {
	Outcome Outcome
	Said    string
}

// Results contains the results of a package's tests and subtests by name. In subtest names, BACKEND
// replaces the backend's configuration.
type Results struct {
	Tests map[string]Test
	// Took is the duration of all tests. Stderr is the last part of the standard error and of the
	// output that belongs to no test.
	Took   time.Duration
	Stderr string
	// ended is true if the program printed its final PASS or FAIL line.
	ended bool
}

// Names returns the sorted names of the tests.
func (r Results) Names() []string { return slices.Sorted(maps.Keys(r.Tests)) }

// Of returns the outcome of a test.
func (r Results) Of(name string) Outcome {
	if t, ok := r.Tests[name]; ok {
		return t.Outcome
	}
	return None
}

// Counts returns the number of tests per outcome. A test with subtests is not counted itself.
func (r Results) Counts() map[Outcome]int {
	counts := map[Outcome]int{}
	names := r.Names()
	for _, name := range names {
		// Compare with all names, because a few characters sort before the slash.
		if !slices.ContainsFunc(names, func(of string) bool { return strings.HasPrefix(of, name+"/") }) {
			counts[r.Tests[name].Outcome]++
		}
	}
	return counts
}

// tops returns the names of the top-level tests.
func (r Results) tops() (names []string) {
	for _, name := range r.Names() {
		if !strings.Contains(name, "/") {
			names = append(names, name)
		}
	}
	return names
}

// broke reports whether the program was killed during a test.
func (r Results) broke() bool {
	return slices.ContainsFunc(slices.Collect(maps.Values(r.Tests)), func(t Test) bool { return t.Outcome == Broken })
}

// event is a line of the output of `go test -json`.
type event struct {
	Action, Test, Output string
	Elapsed              float64
}

// read reads events. Unfinished tests are Broken.
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
			// This is the last line of a program that does not panic.
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

// neutral replaces the backend's configuration in a test's name with BACKEND.
func neutral(name, config string) string {
	parts := strings.Split(name+"/", "/"+strings.ReplaceAll(config, " ", "_")+"/")
	return strings.TrimSuffix(strings.Join(parts, "/BACKEND/"), "/")
}
