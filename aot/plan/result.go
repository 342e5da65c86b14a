package plan

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/tpustrategy/tpustrategy/errkind"
)

// Verdict is what became of a plan in a search.
type Verdict string

const (
	// Compiled was compiled whole and fits.
	Compiled Verdict = "compiled"
	// Probed was probed, and may fit.
	Probed Verdict = "probed"
	// Untried was left when the time or the number of probes was used up.
	Untried Verdict = "untried"
	// Slower cannot be better than the best by what its sketch shows.
	Slower Verdict = "slower"
	// TooLarge needs more memory than a device has: by its variables and arguments, by a probe's estimate,
	// or by the compiler.
	TooLarge Verdict = "too large"
	// TooDear costs more than the budget, or an unknown sum.
	TooDear Verdict = "too dear"
	// Same has the program of another plan, which Reason names.
	Same Verdict = "same"
	// Refused cannot be made of the step, or of the slice; Reason says why.
	Refused Verdict = "refused"
	// Failed is a probe or a compilation that failed for another reason than memory, which Reason says.
	Failed Verdict = "failed"
	// Sketched was gone no further with.
	Sketched Verdict = "sketched"
)

// verdicts are all of them, the best first.
var verdicts = []Verdict{Compiled, Probed, Untried, Sketched, Slower, TooLarge, TooDear, Same, Failed, Refused}

// Candidate is a plan and what a search found out about it.
type Candidate struct {
	Plan    Plan    `json:"plan"`
	Verdict Verdict `json:"verdict"`
	Reason  string  `json:"reason,omitempty"`
	Sketch  Sketch  `json:"-"`
	// Probe has the figures of the probe, and Whole the figures of the finished program; nil without one.
	Probe *Figures `json:"probe,omitempty"`
	Whole *Figures `json:"compiled,omitempty"`
	// Expected is the predicted time of a step by which a plan is ranked, in seconds. For a plan that was
	// compiled whole it is the time in Whole. For a plan that was only probed it is the time in Probe,
	// multiplied by the mean ratio of the two times that the compiled plans of the search show. It is 0 for
	// every other plan.
	Expected float64 `json:"expected_seconds,omitempty"`
	// Dollars are those of the slice for an hour, if Priced.
	Dollars float64 `json:"dollars_per_hour,omitempty"`
	Priced  bool    `json:"-"`
}

// runs reports whether the plan can be run, as far as the search knows.
func (c *Candidate) runs() bool { return c.Verdict == Compiled || c.Verdict == Probed }

// Result is what a search found.
type Result struct {
	Goal Goal `json:"goal"`
	// Took is the time of the search in seconds.
	Took float64 `json:"search_seconds"`
	// Candidates are all plans, the best first.
	Candidates []*Candidate `json:"candidates"`
}

// Best returns the best plan that was compiled whole, which is known to fit, or the best of the probed
// plans if none was compiled. Its error is a ResourceExhaustedError if every plan is too large, and
// otherwise names what excluded the plans.
func (r *Result) Best() (*Candidate, error) {
	for _, verdict := range []Verdict{Compiled, Probed} {
		if i := slices.IndexFunc(r.Candidates, func(c *Candidate) bool { return c.Verdict == verdict }); i >= 0 {
			return r.Candidates[i], nil
		}
	}
	kind, why, hint := errkind.ResourceExhaustedError, "", "take more devices or smaller batches, and let settings such as remat and microbatches vary"
	counts := r.counts()
	if counts[TooLarge] == 0 {
		kind, hint = errkind.FailedPreconditionError, "see what each plan was refused for"
	}
	for _, v := range verdicts {
		if counts[v] > 0 {
			why += fmt.Sprintf(", %d %s", counts[v], v)
		}
	}
	return nil, &errkind.Fault{Op: "plan", Reason: "none of the plans can be run: " + strings.TrimPrefix(why, ", "), Hint: hint, Class: kind}
}

func (r *Result) counts() map[Verdict]int {
	counts := map[Verdict]int{}
	for _, c := range r.Candidates {
		counts[c.Verdict]++
	}
	return counts
}

// shown is the number of plans that a text has.
const shown = 10

// said is how a text says a verdict.
var said = map[Verdict]string{
	Compiled: "compiled whole", Probed: "probed", Untried: "not tried: the time or the number of probes was used up", Sketched: "not tried",
	Slower:   "not probed: no faster than the best, by their arithmetic and their variables alone",
	TooLarge: "do not fit into the memory of a device", TooDear: "over the budget, or of unknown price",
	Same: "not probed: the program is another plan's", Failed: "failed in the compiler", Refused: "refused by the step or the slice",
}

// WriteText writes the result for people: the best plans, and what became of all others.
func (r *Result) WriteText(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%s of %d plans, in %.0f s; predicted times, not measured ones\n\n", r.Goal, len(r.Candidates), r.Took)
	table := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "  step\tof a probe\trows/s\tmemory\t$/M rows\tplan") // "~" marks an estimate
	for i, c := range r.Candidates {
		if i == shown || c.Probe == nil || !c.runs() {
			break
		}
		step, f := seconds(c.Expected), c.Whole
		if f == nil {
			step, f = "~"+step, c.Probe
		}
		rows, price := "-", "-"
		if c.Sketch.Rows > 0 && c.Expected > 0 {
			rate := float64(c.Sketch.Rows) / c.Expected
			rows = fmt.Sprintf("%.4g", rate)
			if c.Priced {
				price = Money(c.Dollars / 3600 / rate * 1e6)
			}
		}
		memory := fmt.Sprintf("%.2f GiB", float64(f.Bytes)/(1<<30))
		if f.Bytes < 1<<30 {
			memory = fmt.Sprintf("%.4g MiB", float64(f.Bytes)/(1<<20))
		}
		if c.Whole == nil {
			memory = "~" + memory
		}
		fmt.Fprintf(table, "  %s\t%s\t%s\t%s\t%s\t%s\n", step, seconds(c.Probe.Seconds), rows, memory, price, c.Plan)
	}
	_ = table.Flush() // a strings.Builder takes everything
	b.WriteString("\n")
	counts := r.counts()
	for _, v := range verdicts {
		if counts[v] == 0 {
			continue
		}
		fmt.Fprintf(&b, "  %4d  %s\n", counts[v], said[v])
		if v != Refused && v != Failed {
			continue
		}
		told := map[string]bool{}
		for _, c := range r.Candidates {
			line, _, _ := strings.Cut(c.Reason, "\n")
			if c.Verdict == v && !told[line] && len(told) < 5 {
				told[line] = true
				fmt.Fprintf(&b, "          %s: %s\n", c.Plan, line)
			}
		}
	}
	b.WriteString("     -  not searched: splits of activations but by settings, orders of the devices, compiler options, replicas that leave devices out\n")
	_, err := io.WriteString(w, b.String())
	return err
}

// seconds is a time with three figures.
func seconds(s float64) string {
	switch {
	case s >= 1:
		return fmt.Sprintf("%.3g s", s)
	case s >= 1e-3:
		return fmt.Sprintf("%.3g ms", s*1e3)
	}
	return fmt.Sprintf("%.3g us", s*1e6)
}
