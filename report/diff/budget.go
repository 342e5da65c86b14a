package diff

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/internal/strictjson"
	"github.com/tpustrategy/tpustrategy/report"
	"github.com/tpustrategy/tpustrategy/report/hlo"
)

// ErrBudget matches the errors of [ParseBudget] and [Budget.Check]: an invalid budget, or a budget
// that a report cannot be compared with.
var ErrBudget = errkind.New(errkind.ValueError, "budget")

// BudgetVersion is the version of the JSON format of a budget.
const BudgetVersion = 1

// Budget contains limits for the figures of a step, for each slice that the step is compiled for.
type Budget struct {
	Version int `json:"version"`
	// Slices are the limits by slice. The keys are names returned by [SliceOf].
	Slices map[string]Limits `json:"slices"`
}

// Limits contains the limits for a step on one slice. A nil field means that there is no limit.
type Limits struct {
	// MemoryBytes is the memory that a core needs, including the code; see report.Memory.Needs.
	MemoryBytes *int64 `json:"memory_bytes,omitempty"`
	// PredictedSeconds is the predicted time of a step. CompileSeconds is the compilation time.
	PredictedSeconds *float64 `json:"predicted_seconds,omitempty"`
	CompileSeconds   *float64 `json:"compile_seconds,omitempty"`
	// Collectives are limits for sets of collectives. Each limit applies to the sum over its set.
	Collectives []CollectiveLimit `json:"collectives,omitempty"`
}

// CollectiveLimit limits the collectives of one kind over one axis. Kind and Axis have the same
// values as in report.Collective. An empty Kind or Axis matches all collectives.
type CollectiveLimit struct {
	Kind string `json:"kind,omitempty"`
	Axis string `json:"axis,omitempty"`
	// Count is the number of collectives that one core starts in a step; 0 forbids them. MovedBytes
	// is the number of bytes that a core sends.
	Count      *int   `json:"count,omitempty"`
	MovedBytes *int64 `json:"moved_bytes,omitempty"`
}

func unusable(cause error, subject, hint, format string, args ...any) error {
	return &errkind.Fault{Match: ErrBudget, Subject: subject, Reason: fmt.Sprintf(format, args...), Err: cause, Hint: hint}
}

// The maximum figures of a budget: a pebibyte, 100 days, and more collectives than any step has.
const mostBytes, mostSeconds, mostCollectives = 1 << 50, 100 * 24 * 3600, 1 << 40

var kinds = hlo.CollectiveKinds()

// ParseBudget parses the JSON format of a budget. Errors match [ErrBudget]. ParseBudget rejects
// unknown keys, duplicate keys, keys that differ only in case, figures out of range, and limits
// without a figure.
func ParseBudget(data []byte) (*Budget, error) {
	const hint = "see docs/compare-steps.md for the form"
	var b Budget
	if err := strictjson.Decode(data, &b); err != nil {
		return nil, unusable(err, "", hint, "")
	}
	switch {
	case b.Version != BudgetVersion:
		return nil, unusable(nil, "", hint, "its version is %d, this program reads %d", b.Version, BudgetVersion)
	case len(b.Slices) == 0:
		return nil, unusable(nil, "", hint, "it has no slices")
	}
	for _, slice := range slices.Sorted(maps.Keys(b.Slices)) {
		if err := b.Slices[slice].check(slice); err != nil {
			return nil, err
		}
	}
	return &b, nil
}

func (l Limits) check(slice string) error {
	const hint = "give a figure that a step may have"
	seen := map[[2]string]bool{}
	for _, c := range l.Collectives {
		key := [2]string{c.Kind, c.Axis}
		switch {
		case c.Kind != "" && !slices.Contains(kinds, c.Kind):
			return unusable(nil, slice, "there are "+strings.Join(kinds, ", "), "no collectives are of kind %q", c.Kind)
		case seen[key]:
			return unusable(nil, slice, "give one", "two limits of the collectives of kind %q over %q", c.Kind, c.Axis)
		case c.Count == nil && c.MovedBytes == nil:
			return unusable(nil, slice, "give count or moved_bytes", "a limit of collectives has no figure")
		case c.Count != nil && (*c.Count < 0 || *c.Count > mostCollectives):
			return unusable(nil, slice, hint, "collectives: count is %d", *c.Count)
		case c.MovedBytes != nil && (*c.MovedBytes < 0 || *c.MovedBytes > mostBytes):
			return unusable(nil, slice, hint, "collectives: moved_bytes is %d", *c.MovedBytes)
		}
		seen[key] = true
	}
	switch {
	case l.MemoryBytes == nil && l.PredictedSeconds == nil && l.CompileSeconds == nil && l.Collectives == nil:
		return unusable(nil, slice,
			"leave the slice out, or give memory_bytes, predicted_seconds, compile_seconds or collectives", "it has no limit")
	case l.MemoryBytes != nil && (*l.MemoryBytes <= 0 || *l.MemoryBytes > mostBytes):
		return unusable(nil, slice, hint, "memory_bytes is %d", *l.MemoryBytes)
	case l.PredictedSeconds != nil && !(*l.PredictedSeconds > 0 && *l.PredictedSeconds <= mostSeconds):
		return unusable(nil, slice, hint, "predicted_seconds is %v", *l.PredictedSeconds)
	case l.CompileSeconds != nil && !(*l.CompileSeconds > 0 && *l.CompileSeconds <= mostSeconds):
		return unusable(nil, slice, hint, "compile_seconds is %v", *l.CompileSeconds)
	}
	return nil
}

// Check compares steps with the budget. It returns the figures that exceed a limit, sorted by
// slice. The error matches [ErrBudget] if a slice of the budget has no report, or if a report does
// not contain a limited figure. Slices without limits are not checked.
func (b *Budget) Check(steps []*report.Report) ([]Change, error) {
	by := map[string]*report.Report{}
	for _, r := range steps {
		by[SliceOf(r)] = r
	}
	over := []Change{}
	for _, slice := range slices.Sorted(maps.Keys(b.Slices)) {
		r := by[slice]
		if r == nil {
			return nil, unusable(nil, slice, "leave the slice out, or compile the step for it",
				"there is no report of it, but of %s", strings.Join(slices.Sorted(maps.Keys(by)), ", "))
		}
		more, err := b.Slices[slice].over(slice, r)
		if err != nil {
			return nil, err
		}
		over = append(over, more...)
	}
	return over, nil
}

// over returns the figures of a step that exceed their limits.
func (l Limits) over(slice string, r *report.Report) (over []Change, err error) {
	hold := func(what string, limit, is float64, unit string) {
		if is > limit {
			over = append(over, Change{Slice: slice, What: what, Verdict: Worse, Before: limit, After: is, Unit: unit,
				Text: fmt.Sprintf("%s on %s: %s, the budget is %s%s", what, slice, inUnit(is, unit), inUnit(limit, unit),
					percent(limit, is))})
		}
	}
	if l.MemoryBytes != nil && r.Memory.Needs == 0 && r.Memory.Refused {
		over = append(over, Change{Slice: slice, What: "memory", Verdict: Worse, Before: float64(*l.MemoryBytes),
			Unit: unitBytes,
			Text: fmt.Sprintf("memory on %s: the compiler refused the step as too large", slice)})
	}
	seconds := 0.0
	if r.Predicted != nil {
		seconds = r.Predicted.Seconds
	}
	for _, x := range []struct {
		name, what, unit string
		limit            *float64
		is               float64
	}{
		{"memory_bytes", "memory", unitBytes, number(l.MemoryBytes), float64(r.Memory.Needs)},
		{"predicted_seconds", "predicted time", unitSeconds, l.PredictedSeconds, seconds},
		{"compile_seconds", "time to compile", unitSeconds, l.CompileSeconds, r.CompilingSeconds},
	} {
		switch {
		case x.limit == nil:
		case x.is > 0:
			hold(x.what, *x.limit, x.is, x.unit)
		case !r.Memory.Refused: // a rejected program exceeds the memory budget and has no other figures
			return nil, unusable(nil, slice, "leave "+x.name+" out for it", "its report has no %s", x.what)
		}
	}
	for _, limit := range l.Collectives {
		if err := known(slice, r, limit.Axis); err != nil {
			return nil, err
		}
		var all report.Collective
		for _, c := range r.Collectives {
			if (limit.Kind == "" || c.Kind == limit.Kind) && (limit.Axis == "" || c.Axis == limit.Axis) {
				all = sum(all, c)
			}
		}
		what := "collectives"
		if limit.Kind != "" {
			what = limit.Kind + "s"
		}
		if limit.Axis != "" {
			what += " over " + limit.Axis
		}
		if limit.Count != nil {
			hold(what, float64(*limit.Count), float64(all.Count), "")
		}
		if limit.MovedBytes != nil {
			hold("what a core sends in "+what, float64(*limit.MovedBytes), float64(all.Moved), unitBytes)
		}
	}
	return over, nil
}

func number(n *int64) *float64 {
	if n == nil {
		return nil
	}
	x := float64(*n)
	return &x
}

// known returns an error if the step's mesh does not have the axis, because a limit for such an
// axis would never be exceeded.
func known(slice string, r *report.Report, axis string) error {
	if axis == "" || axis == "slices" || axis == "unknown" || r.Mesh == "" {
		return nil
	}
	var axes []string
	for part := range strings.SplitSeq(r.Mesh, ",") {
		name, _, _ := strings.Cut(part, "=")
		axes = append(axes, strings.TrimSpace(name))
	}
	for name := range strings.SplitSeq(axis, "+") {
		if !slices.Contains(axes, name) {
			return unusable(nil, slice, "its axes are "+strings.Join(axes, ", "), "the step has no axis %q", name)
		}
	}
	return nil
}
