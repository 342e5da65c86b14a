package diff

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/report"
)

// Verdict says what a change means.
type Verdict string

// The verdicts.
const (
	Same   Verdict = "same"
	Better Verdict = "better"
	Worse  Verdict = "worse"
)

// Change is a figure in which two steps differ.
type Change struct {
	// Slice is the slice of a step that is over its budget, and empty otherwise.
	Slice string `json:"slice,omitempty"`
	// What is the figure's name, such as "memory" or "donation", and Subject the tensor or the
	// collective that has it, if it is of one.
	What    string  `json:"what"`
	Subject string  `json:"subject,omitempty"`
	Verdict Verdict `json:"verdict"`
	// Before and After are the figures, in bytes, seconds or operations as Unit says; it is empty for
	// numbers of things. Of a step over its budget Before is the limit.
	Before float64 `json:"before"`
	After  float64 `json:"after"`
	Unit   string  `json:"unit,omitempty"`
	// Text is the change as a sentence.
	Text string `json:"text"`
}

// Diff is what changed between two steps.
type Diff struct {
	// Slice is that of the second step, as [SliceOf] names it.
	Slice string `json:"slice"`
	// Before and After name the steps with their devices.
	Before string `json:"before"`
	After  string `json:"after"`
	// Changes are the figures that differ, worse ones first.
	Changes []Change `json:"changes"`
	// Notes say what could not be compared, and what else was not the same.
	Notes []string `json:"notes,omitempty"`
}

// Tolerance says up to which share of the first step's figure a change is none. 0 stands for the
// default.
type Tolerance struct {
	// Share is that of memory, traffic, operations and predicted times; the default is 0.01. Up to 4 KiB
	// or 1 us are no change either way.
	Share float64
	// Code is that of the sizes of texts and code, 0.1, and Compile that of the time to compile, 1: twice
	// as long, and 10 s more, is worse.
	Code, Compile float64
}

const (
	unitBytes   = "bytes"
	unitSeconds = "seconds"
	unitFLOP    = "FLOP"
	leastBytes  = 4 << 10
)

// comparison is a diff in the making.
type comparison struct {
	*Diff
	before, after *report.Report
	tolerance     Tolerance
}

// Reports compares two steps. Of a step that the compiler refused only the tensors are compared, and
// the memory that it asks for. Errors are of kind errkind.ValueError.
func Reports(before, after *report.Report, t Tolerance) (*Diff, error) {
	if before == nil || after == nil {
		return nil, &errkind.Fault{Op: "diff", Reason: "a report is nil", Hint: "give two", Class: errkind.ValueError}
	}
	for _, share := range []float64{t.Share, t.Code, t.Compile} {
		if !(share >= 0 && share <= 100) {
			return nil, &errkind.Fault{Op: "diff: tolerance", Reason: fmt.Sprintf("%v is no share", share), Hint: "give 0.01 for a hundredth", Class: errkind.ValueError}
		}
	}
	t = Tolerance{cmp.Or(t.Share, 0.01), cmp.Or(t.Code, 0.1), cmp.Or(t.Compile, 1)}
	title := func(r *report.Report) string {
		return fmt.Sprintf("%s on %s: %d replicas of %d logical devices", r.Step, SliceOf(r), r.Replicas, r.LogicalDevices)
	}
	c := &comparison{&Diff{Slice: SliceOf(after), Before: title(before), After: title(after), Changes: []Change{}}, before, after, t}
	if before.Target.Platform != after.Target.Platform {
		c.note("compiled by %s, was %s", after.Target.Platform, before.Target.Platform)
	}
	c.memory()
	c.tensors()
	if !before.Memory.Refused && !after.Memory.Refused {
		c.collectives()
		c.temporaries()
		c.cost()
	}
	order := []Verdict{Worse, Better, Same}
	slices.SortStableFunc(c.Changes, func(a, b Change) int {
		return cmp.Compare(slices.Index(order, a.Verdict), slices.Index(order, b.Verdict))
	})
	return c.Diff, nil
}

// SliceOf names the slice of a report, such as "v5e:2x4" or "cpu:8".
func SliceOf(r *report.Report) string {
	if r.Target.Name == "cpu" {
		return fmt.Sprintf("cpu:%d", r.Target.Devices)
	}
	return r.Target.Name
}

func (c *comparison) note(format string, args ...any) {
	c.Notes = append(c.Notes, fmt.Sprintf(format, args...))
}

// verdict compares figures of which less is better.
func verdict(before, after, share, least float64) Verdict {
	switch delta := after - before; {
	case math.Abs(delta) <= max(least, share*before):
		return Same
	case delta > 0:
		return Worse
	}
	return Better
}

// bytes is verdict for numbers of bytes.
func (c *comparison) bytes(before, after int64) Verdict {
	return verdict(float64(before), float64(after), c.tolerance.Share, leastBytes)
}

// figure adds a figure that both steps know.
func (c *comparison) figure(what string, before, after float64, unit string, share, least float64, more string) {
	if before == after {
		return
	}
	text := fmt.Sprintf("%s: %s, was %s%s", what, inUnit(after, unit), inUnit(before, unit), percent(before, after))
	if more != "" {
		text += "; " + more
	}
	c.Changes = append(c.Changes, Change{What: what, Verdict: verdict(before, after, share, least), Before: before, After: after, Unit: unit, Text: text})
}

// some is figure for figures that are not known where they are not above 0.
func (c *comparison) some(what string, before, after float64, unit string, share, least float64, more string) {
	if before > 0 && after > 0 {
		c.figure(what, before, after, unit, share, least, more)
	} else if before > 0 || after > 0 {
		c.note("%s is not compared: only one of the reports has it", what)
	}
}

func inUnit(x float64, unit string) string {
	switch unit {
	case unitBytes:
		if x < 0 {
			return "-" + report.Bytes(int64(-x))
		}
		return report.Bytes(int64(x))
	case unitSeconds:
		return report.Seconds(x)
	case unitFLOP:
		return report.SI(x, unit)
	}
	return fmt.Sprintf("%.0f", x)
}

func percent(before, after float64) string {
	if before <= 0 {
		return ""
	}
	return fmt.Sprintf(" (%+.1f %%)", 100*(after-before)/before)
}
