package diff

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/internal/units"
	"github.com/tpustrategy/tpustrategy/report"
)

// Verdict is the assessment of a change, such as better or worse.
type Verdict string

// The verdicts.
const (
	Same   Verdict = "same"
	Better Verdict = "better"
	Worse  Verdict = "worse"
)

// Change is a difference between two steps in one figure, such as the memory.
type Change struct {
	// Slice is the slice of a step that exceeds its budget, and empty otherwise.
	Slice string `json:"slice,omitempty"`
	// What is the name of the figure, such as "memory" or "donation". Subject is the tensor or the
	// collective of the figure, if any.
	What    string  `json:"what"`
	Subject string  `json:"subject,omitempty"`
	Verdict Verdict `json:"verdict"`
	// Before and After are the figures. Unit is bytes, seconds or operations, and empty for counts.
	// For a step that exceeds its budget, Before is the limit.
	Before float64 `json:"before"`
	After  float64 `json:"after"`
	Unit   string  `json:"unit,omitempty"`
	// Text describes the change in a sentence.
	Text string `json:"text"`
}

// Diff contains the changes between two steps.
type Diff struct {
	// Slice is the slice of the second step, as returned by [SliceOf].
	Slice string `json:"slice"`
	// Before and After are the names of the steps with their devices.
	Before string `json:"before"`
	After  string `json:"after"`
	// Changes are the figures that differ, the worse ones first.
	Changes []Change `json:"changes"`
	// Notes list the figures that could not be compared and further differences.
	Notes []string `json:"notes,omitempty"`
}

// Tolerance specifies how large a change must be to count. Tolerances are fractions of the first
// step's figure. A tolerance of 0 selects the default.
type Tolerance struct {
	// Share applies to memory, traffic, operations and predicted times. The default is 0.01.
	// Changes of up to 4 KiB or 1 us are always ignored.
	Share float64
	// Code applies to the sizes of texts and code; the default is 0.1. Compile applies to the
	// compilation time; the default is 1: an increase is worse if the time more than doubles and
	// increases by more than 10 s.
	Code, Compile float64
}

const (
	unitBytes   = "bytes"
	unitSeconds = "seconds"
	unitFLOP    = "FLOP"
	leastBytes  = 4 << 10
)

type comparison struct {
	*Diff
	before, after *report.Report
	tolerance     Tolerance
}

// Reports compares the reports of two steps. If the compiler rejected one of the programs, Reports
// compares only the tensors and the required memory. Errors are of kind errkind.ValueError.
func Reports(before, after *report.Report, t Tolerance) (*Diff, error) {
	if before == nil || after == nil {
		return nil, &errkind.Fault{Op: "diff", Reason: "a report is nil", Hint: "give two", Class: errkind.ValueError}
	}
	for _, share := range []float64{t.Share, t.Code, t.Compile} {
		if !(share >= 0 && share <= 100) {
			return nil, &errkind.Fault{Op: "diff: tolerance", Reason: fmt.Sprintf("%v is not a fraction", share),
				Hint: "for example 0.01 for 1 %", Class: errkind.ValueError}
		}
	}
	t = Tolerance{cmp.Or(t.Share, 0.01), cmp.Or(t.Code, 0.1), cmp.Or(t.Compile, 1)}
	title := func(r *report.Report) string {
		return fmt.Sprintf("%s on %s: %d replicas of %d logical devices", r.Step, SliceOf(r), r.Replicas, r.LogicalDevices)
	}
	c := &comparison{&Diff{Slice: SliceOf(after), Before: title(before), After: title(after), Changes: []Change{}}, before,
		after, t}
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

// SliceOf returns the name of the slice that a step was compiled for, such as "v5e:2x4" or "cpu:8".
func SliceOf(r *report.Report) string {
	if r.Target.Name == "cpu" {
		return fmt.Sprintf("cpu:%d", r.Target.Devices)
	}
	return r.Target.Name
}

func (c *comparison) note(format string, args ...any) {
	c.Notes = append(c.Notes, fmt.Sprintf(format, args...))
}

// verdict assesses the change of a figure that should be small. Changes of up to least, or up to
// the given share of before, count as unchanged.
func verdict(before, after, share, least float64) Verdict {
	switch delta := after - before; {
	case math.Abs(delta) <= max(least, share*before):
		return Same
	case delta > 0:
		return Worse
	}
	return Better
}

func (c *comparison) bytes(before, after int64) Verdict {
	return verdict(float64(before), float64(after), c.tolerance.Share, leastBytes)
}

func (c *comparison) figure(what string, before, after float64, unit string, share, least float64, more string) {
	if before == after {
		return
	}
	text := fmt.Sprintf("%s: %s, was %s%s", what, inUnit(after, unit), inUnit(before, unit), percent(before, after))
	if more != "" {
		text += "; " + more
	}
	c.Changes = append(c.Changes, Change{What: what, Verdict: verdict(before, after, share, least), Before: before,
		After: after, Unit: unit, Text: text})
}

// some compares a figure if it is known in both reports. A figure that is not positive is unknown.
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
			return "-" + units.Bytes(int64(-x))
		}
		return units.Bytes(int64(x))
	case unitSeconds:
		return units.Seconds(x)
	case unitFLOP:
		return units.SI(x, unit)
	}
	return fmt.Sprintf("%.0f", x)
}

func percent(before, after float64) string {
	if before <= 0 {
		return ""
	}
	return fmt.Sprintf(" (%+.1f %%)", 100*(after-before)/before)
}
