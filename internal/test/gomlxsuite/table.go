package gomlxsuite

import (
	"fmt"
	"strings"
)

// The generated part of the page is between these lines.
const (
	begins = "<!-- written by make test-gomlx, internal/test/gomlxsuite -->\n"
	ends   = "<!-- end of what make test-gomlx writes -->\n"
)

// Replaced is a page with another generated part.
func Replaced(page, part string) (string, error) {
	before, rest, found := strings.Cut(page, begins)
	_, after, closed := strings.Cut(rest, ends)
	if !found || !closed {
		return "", fmt.Errorf("gomlxsuite: the page lacks the lines %q and %q", begins, ends)
	}
	return before + begins + part + ends + after, nil
}

// Table is the counts of each package on each backend, passed/failed/skipped, then what differs and
// why. A test with subtests is not counted beside them. Times are left out, so that the same
// results give the same text. A dash is a run that was not done.
func Table(runs Runs, packages []string, backends []Backend, found []Difference, reasons []Reason) string {
	var b strings.Builder
	b.WriteString("\n| package |")
	for _, of := range backends {
		fmt.Fprintf(&b, " %s |", of.Name)
	}
	b.WriteString("\n|---|" + strings.Repeat("---|", len(backends)) + "\n")
	sums := make([]map[Outcome]int, len(backends))
	for _, p := range packages {
		fmt.Fprintf(&b, "| `%s` |", p)
		for i, of := range backends {
			if sums[i] == nil {
				sums[i] = map[Outcome]int{}
			}
			r, done := runs[of.Name][p]
			if !done {
				b.WriteString(notDone)
				continue
			}
			counts := r.Counts()
			fmt.Fprintf(&b, " %s |", counted(counts))
			for outcome, n := range counts {
				sums[i][outcome] += n
			}
		}
		b.WriteString("\n")
	}
	b.WriteString("| all |")
	for _, counts := range sums {
		fmt.Fprintf(&b, " %s |", counted(counts))
	}
	b.WriteString("\n\n| package | test | backends | tests | XLA's, ours | why |\n|---|---|---|---|---|---|\n")
	for _, r := range reasons {
		tests := map[string]bool{}
		for _, d := range found {
			if r.Explains(d) {
				tests[d.Test] = true
			}
		}
		on := "all of ours"
		if r.Backends != nil {
			on = strings.Join(r.Backends, ", ")
		}
		fmt.Fprintf(&b, "| `%s` | `%s` | %s | %d | %s, %s | %s |\n", r.Package, r.Test, on, len(tests), r.Theirs, r.Ours,
			r.Why)
	}
	b.WriteString("\n")
	return b.String()
}

// notDone is the cell of a run that was not done.
const notDone = " – |"

// Poorer says whether a page has more runs that were not done than another, which has a table.
func Poorer(page, than string) bool {
	return strings.Contains(than, "| all |") && strings.Count(page, notDone) > strings.Count(than, notDone)
}

// counted writes counts as passed/failed/skipped; a program's end in the midst is a failure.
func counted(counts map[Outcome]int) string {
	return fmt.Sprintf("%d/%d/%d", counts[Pass], counts[Fail]+counts[Broken], counts[Skip])
}
