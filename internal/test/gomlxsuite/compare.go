package gomlxsuite

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Runs contains results by backend name and package.
type Runs map[string]map[string]Results

// Difference is a test whose outcome on a backend of this module differs from the outcome on
// GoMLX's backend.
type Difference struct {
	Backend, Package, Test string
	Theirs, Ours           Outcome
}

func (d Difference) String() string {
	return fmt.Sprintf("%s\t%s\t%s\t%s->%s", d.Backend, d.Package, d.Test, d.Theirs, d.Ours)
}

// Differences compares the backends in ours with the backend theirs and returns the differences by
// package and test.
func (r Runs) Differences(theirs string, ours []string) (found []Difference) {
	for _, p := range slices.Sorted(maps.Keys(r[theirs])) {
		for _, b := range ours {
			of := r[theirs][p]
			with, done := r[b][p]
			if !done {
				continue
			}
			names := slices.Sorted(maps.Keys(of.Tests))
			for name := range with.Tests {
				if of.Of(name) == None {
					names = append(names, name)
				}
			}
			slices.Sort(names)
			for _, name := range names {
				if of.Of(name) != with.Of(name) {
					found = append(found, Difference{b, p, name, of.Of(name), with.Of(name)})
				}
			}
		}
	}
	return found
}

// Reason is a line of differences.tsv. It explains the differences of a test.
type Reason struct {
	// Backends contains the names of this module's backends. It is empty if the reason applies to
	// all of them.
	Backends []string
	Package  string
	// Test is the name of a test. With the suffix "/..." it includes all subtests.
	Test string
	// Theirs and Ours are the outcomes. If a test is skipped before it runs its subtests, the
	// outcome of the subtests may also be None.
	Theirs, Ours Outcome
	Why          string
}

// Reasons parses lines of five tab-separated fields: backends, package, test, outcomes such as
// "pass->skip", and reason. Backends are separated by commas, or * for all backends. Empty lines
// and lines that begin with # are ignored.
func Reasons(text string) (reasons []Reason, err error) {
	number := 0
	for line := range strings.Lines(text) {
		number++
		line = strings.TrimRight(line, "\n")
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		fields := strings.Split(line, "\t")
		if len(fields) != 5 {
			return nil, fmt.Errorf("differences.tsv:%d: %d fields, want backends, package, test, outcomes, why", number,
				len(fields))
		}
		theirs, ours, ok := strings.Cut(fields[3], "->")
		if !ok || fields[4] == "" {
			return nil, fmt.Errorf("differences.tsv:%d: want outcomes such as pass->skip, and why", number)
		}
		r := Reason{Package: fields[1], Test: fields[2], Theirs: Outcome(theirs), Ours: Outcome(ours), Why: fields[4]}
		if fields[0] != "*" {
			r.Backends = strings.Split(fields[0], ",")
		}
		reasons = append(reasons, r)
	}
	return reasons, nil
}

// Explains reports whether the reason applies to a difference.
func (r Reason) Explains(d Difference) bool {
	if d.Package != r.Package || r.Backends != nil && !slices.Contains(r.Backends, d.Backend) {
		return false
	}
	if d.Theirs == r.Theirs && d.Ours == r.Ours && d.Test == strings.TrimSuffix(r.Test, "/...") {
		return true
	}
	top, all := strings.CutSuffix(r.Test, "/...")
	if !all || !strings.HasPrefix(d.Test, top+"/") {
		return false
	}
	// A skipped test has no subtests.
	return (d.Theirs == r.Theirs || d.Theirs == None) && (d.Ours == r.Ours || d.Ours == None)
}

// Unexplained returns the differences without a reason, and the reasons that apply to no
// difference.
func Unexplained(found []Difference, reasons []Reason) (differences []Difference, idle []Reason) {
	used := make([]bool, len(reasons))
	for _, d := range found {
		explained := false
		for i, r := range reasons {
			if r.Explains(d) {
				used[i], explained = true, true
			}
		}
		if !explained {
			differences = append(differences, d)
		}
	}
	for i, r := range reasons {
		if !used[i] {
			idle = append(idle, r)
		}
	}
	return differences, idle
}
