package gomlxsuite

import (
	"fmt"
	"strings"
)

// These lines delimit the generated part of the page.
const (
	begins = "<!-- written by make test-gomlx, internal/test/gomlxsuite -->\n"
	ends   = "<!-- end of what make test-gomlx writes -->\n"
)

// Replaced returns a page with a new generated part.
func Replaced(page, part string) (string, error) {
	before, rest, found := strings.Cut(page, begins)
	_, after, closed := strings.Cut(rest, ends)
	if !found || !closed {
		return "", fmt.Errorf("gomlxsuite: the page lacks the lines %q and %q", begins, ends)
	}
	return before + begins + part + ends + after, nil
}

// Table returns a table with the passed/failed/skipped counts of each package on each backend, and
// a table of the differences and their reasons. A test with subtests is not counted itself. The
// tables contain no times, so that the same results produce the same text. A dash is a run without
// results.
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

// notDone is the cell of a run without results.
const notDone = " – |"

// Poorer reports whether a page lacks more runs than another page that has a table.
func Poorer(page, than string) bool {
	return strings.Contains(than, "| all |") && strings.Count(page, notDone) > strings.Count(than, notDone)
}

// counted formats counts as passed/failed/skipped. Broken tests count as failed.
func counted(counts map[Outcome]int) string {
	return fmt.Sprintf("%d/%d/%d", counts[Pass], counts[Fail]+counts[Broken], counts[Skip])
}
