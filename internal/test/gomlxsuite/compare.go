package gomlxsuite

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Runs are results by the backend's name, then by the package.
type Runs map[string]map[string]Results

// Difference is a test with another outcome on a backend of ours than on GoMLX's.
type Difference struct {
	Backend, Package, Test string
	Theirs, Ours           Outcome
}

func (d Difference) String() string {
	return fmt.Sprintf("%s\t%s\t%s\t%s->%s", d.Backend, d.Package, d.Test, d.Theirs, d.Ours)
}

// Differences are those of the backends ours from theirs, by package and test. A test that has
// subtests differs only where those do, or where it has them on one backend only.
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

// Reason says why tests differ: a line of differences.tsv.
type Reason struct {
	// Backends are the names of ours, or empty for all of them.
	Backends []string
	Package  string
	// Test is a test's name, or ends in "/..." for the test and all its subtests.
	Test string
	// Theirs and Ours are the outcomes; of subtests, also None on both sides, where the test itself
	// was skipped before it had them.
	Theirs, Ours Outcome
	Why          string
}

// Reasons reads lines of five fields between tabs: backends, package, test, outcomes such as
// "pass->skip", and why. Backends are names after commas, or * for all. Lines that are empty or
// begin with # are left out.
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

// Explains says whether the reason is that of a difference.
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
	// A test that is skipped has no subtests.
	return (d.Theirs == r.Theirs || d.Theirs == None) && (d.Ours == r.Ours || d.Ours == None)
}

// Unexplained are the differences that no reason explains, and the reasons that explain none.
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
