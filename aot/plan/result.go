package plan

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/tpustrategy/tpustrategy/errkind"
)

// Verdict is the outcome of a plan in a search.
type Verdict string

const (
	// Compiled means that the plan was compiled completely and fits into memory.
	Compiled Verdict = "compiled"
	// Probed means that a probe estimated the plan's time and memory, and that it may fit.
	Probed Verdict = "probed"
	// NotTried means that the limit of time or of probes was reached before the plan was probed.
	NotTried Verdict = "untried"
	// Slower means that the lower bound of the step time is above the time of the best plan.
	Slower Verdict = "slower"
	// TooLarge means that the plan needs more memory than a device has, according to its variables
	// and arguments, a probe's estimate, or the compiler.
	TooLarge Verdict = "too large"
	// OverBudget means that the price is above the budget or unknown.
	OverBudget Verdict = "too dear"
	// Duplicate means that the program equals the program of another plan, which Reason names.
	Duplicate Verdict = "same"
	// Rejected means that the step or the slice does not support the plan; Reason contains the
	// error.
	Rejected Verdict = "refused"
	// Failed means that a probe or a compilation failed with an error other than a lack of memory;
	// Reason contains the error.
	Failed Verdict = "failed"
	// Sketched means that the plan was lowered but neither probed nor compiled.
	Sketched Verdict = "sketched"
)

// verdicts are all verdicts, the best first.
var verdicts = []Verdict{Compiled, Probed, NotTried, Sketched, Slower, TooLarge, OverBudget, Duplicate, Failed,
	Rejected}

// Candidate is a plan and the results of the search for this plan.
type Candidate struct {
	Plan    Plan    `json:"plan"`
	Verdict Verdict `json:"verdict"`
	Reason  string  `json:"reason,omitempty"`
	Sketch  Sketch  `json:"-"`
	// Probe contains the estimates of the probe, and Compiled those of the compiled program. They
	// are nil if there are none.
	Probe    *Figures `json:"probe,omitempty"`
	Compiled *Figures `json:"compiled,omitempty"`
	// ExpectedSeconds is the predicted time of a step in seconds, by which plans are ranked. For a
	// compiled plan it is the time in Compiled. For a plan that was only probed it is the time in
	// Probe, multiplied by the mean ratio of the two times over the compiled plans of the search.
	// It is 0 for every other plan.
	ExpectedSeconds float64 `json:"expected_seconds,omitempty"`
	// HourlyPrice is the price of the slice per hour, if HasPrice is set.
	HourlyPrice float64 `json:"dollars_per_hour,omitempty"`
	HasPrice    bool    `json:"-"`
}

func (c *Candidate) canRun() bool { return c.Verdict == Compiled || c.Verdict == Probed }

// Result is the result of a search.
type Result struct {
	Goal Goal `json:"goal"`
	// Seconds is the duration of the search in seconds.
	Seconds float64 `json:"search_seconds"`
	// Candidates are all plans, the best first.
	Candidates []*Candidate `json:"candidates"`
}

// Best returns the best of the plans that were compiled completely and fit. If no plan was
// compiled, it returns the best plan whose time and memory were only estimated by a probe. If there
// is neither, the error counts the plans by verdict. Its kind is ResourceExhaustedError if any plan
// is too large, and otherwise FailedPreconditionError.
func (r *Result) Best() (*Candidate, error) {
	for _, verdict := range []Verdict{Compiled, Probed} {
		if i := slices.IndexFunc(r.Candidates, func(c *Candidate) bool { return c.Verdict == verdict }); i >= 0 {
			return r.Candidates[i], nil
		}
	}
	kind, counted, hint := errkind.ResourceExhaustedError, "",
		"use more devices or smaller batches, and vary settings such as remat and microbatches"
	counts := r.countVerdicts()
	if counts[TooLarge] == 0 {
		kind, hint = errkind.FailedPreconditionError, "see the reason of each rejected plan"
	}
	for _, v := range verdicts {
		if counts[v] > 0 {
			counted += fmt.Sprintf(", %d %s", counts[v], v)
		}
	}
	return nil, &errkind.Fault{Op: "plan", Reason: "none of the plans can be run: " + strings.TrimPrefix(counted, ", "),
		Hint: hint, Class: kind}
}

func (r *Result) countVerdicts() map[Verdict]int {
	counts := map[Verdict]int{}
	for _, c := range r.Candidates {
		counts[c.Verdict]++
	}
	return counts
}

// maxShownPlans is the maximum number of plans that WriteText prints.
const maxShownPlans = 10

// verdictTexts are the descriptions of verdicts in WriteText.
var verdictTexts = map[Verdict]string{
	Compiled: "compiled whole", Probed: "probed", NotTried: "not tried: the time or the number of probes was used up",
	Sketched: "not tried",
	Slower:   "not probed: no faster than the best, by their arithmetic and their variables alone",
	TooLarge: "do not fit into the memory of a device", OverBudget: "over the budget, or of unknown price",
	Duplicate: "not probed: the program is another plan's", Failed: "failed in the compiler",
	Rejected: "refused by the step or the slice",
}

// WriteText writes a readable summary: a table of the best plans, and the number of plans with each
// verdict.
func (r *Result) WriteText(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%s of %d plans, in %.0f s; predicted times, not measured ones\n\n", r.Goal, len(r.Candidates),
		r.Seconds)
	table := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "  step\tof a probe\trows/s\tmemory\t$/M rows\tplan") // "~" marks an estimate
	for i, c := range r.Candidates {
		if i == maxShownPlans || c.Probe == nil || !c.canRun() {
			break
		}
		step, f := formatSeconds(c.ExpectedSeconds), c.Compiled
		if f == nil {
			step, f = "~"+step, c.Probe
		}
		rows, price := "-", "-"
		if c.Sketch.Rows > 0 && c.ExpectedSeconds > 0 {
			rate := float64(c.Sketch.Rows) / c.ExpectedSeconds
			rows = fmt.Sprintf("%.4g", rate)
			if c.HasPrice {
				price = FormatDollars(c.HourlyPrice / 3600 / rate * 1e6)
			}
		}
		memory := fmt.Sprintf("%.2f GiB", float64(f.Bytes)/(1<<30))
		if f.Bytes < 1<<30 {
			memory = fmt.Sprintf("%.4g MiB", float64(f.Bytes)/(1<<20))
		}
		if c.Compiled == nil {
			memory = "~" + memory
		}
		fmt.Fprintf(table, "  %s\t%s\t%s\t%s\t%s\t%s\n", step, formatSeconds(c.Probe.Seconds), rows, memory, price, c.Plan)
	}
	_ = table.Flush() // a strings.Builder returns no errors
	b.WriteString("\n")
	counts := r.countVerdicts()
	for _, v := range verdicts {
		if counts[v] == 0 {
			continue
		}
		fmt.Fprintf(&b, "  %4d  %s\n", counts[v], verdictTexts[v])
		if v != Rejected && v != Failed {
			continue
		}
		printed := map[string]bool{}
		for _, c := range r.Candidates {
			line, _, _ := strings.Cut(c.Reason, "\n")
			if c.Verdict == v && !printed[line] && len(printed) < 5 {
				printed[line] = true
				fmt.Fprintf(&b, "          %s: %s\n", c.Plan, line)
			}
		}
	}
	b.WriteString("     -  not searched: splits of activations but by settings, orders of the devices, compiler " +
		"options, replicas that leave devices out\n")
	_, err := io.WriteString(w, b.String())
	return err
}

// formatSeconds formats a duration with three significant digits.
func formatSeconds(s float64) string {
	switch {
	case s >= 1:
		return fmt.Sprintf("%.3g s", s)
	case s >= 1e-3:
		return fmt.Sprintf("%.3g ms", s*1e3)
	}
	return fmt.Sprintf("%.3g us", s*1e6)
}
