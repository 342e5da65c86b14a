package logical

import (
	"fmt"
	"slices"
	"strings"

	"github.com/tpustrategy/tpustrategy/internal/region"
	"github.com/tpustrategy/tpustrategy/sharding"
)

// ExplainedSpec is the sharding of a variable over the mesh, with the rules that determined it.
type ExplainedSpec struct {
	// Spec has one entry for each dimension. It contains no axes of size 1.
	Spec sharding.Spec
	// Rules are the indices of the rules that apply to the variable, including rules that could not
	// be followed.
	Rules []int
	// UnsplitReason explains why dimensions that a rule splits are not split. It is empty if all
	// rules were followed.
	UnsplitReason string
	// RuleText describes the rules that determined Spec.
	RuleText string
}

// SpecFor returns the sharding of a variable with the given path and dimensions. A dimension
// that its axes do not divide is not split. If the rule is Required, SpecFor returns a
// [*RuleError] for this dimension. The rules must split over named axes, and must be valid for the
// mesh (see [Rules.Validate]).
func (rules Rules) SpecFor(mesh sharding.Mesh, path string, dims []int) (ExplainedSpec, error) {
	p := ExplainedSpec{}
	axes := make([][]string, len(dims))
	var applied, unsplit, skipped []string
	var required error
	addMiss := func(list *[]string, i int, text string) {
		if !slices.Contains(p.Rules, i) {
			p.Rules = append(p.Rules, i)
		}
		*list = append(*list, fmt.Sprintf("rule %d: %s", i, text))
		if rules[i].Required && required == nil {
			required = &RuleError{Rule: i, Text: rules[i].String(), Variable: path, Shape: slices.Clone(dims), Reason: text,
				Hint: "change the rule, pad the dimension, or remove required"}
		}
	}
	addRule := func(i int) {
		applied, p.Rules = append(applied, fmt.Sprintf("rule %d", i)), append(p.Rules, i)
	}
	first, largest := rules.matchVariable(path, dims)
	for i, r := range rules {
		if rank := r.Annotation.Rank(); (first < 0 || i < first) && rank >= 0 && rank != len(dims) && len(dims) > 0 &&
			r.matches(path) {
			addMiss(&skipped, i, fmt.Sprintf("it splits %d dimensions, but the variable has %d", rank, len(dims)))
		}
	}
	if first >= 0 {
		addRule(first)
		for dim, names := range rules[first].Annotation.axes {
			splitAxes, parts := region.NontrivialAxes(mesh, names)
			if parts > 1 && (dims[dim]%parts != 0 || dims[dim] == 0) {
				addMiss(&unsplit, first, fmt.Sprintf("dimension %d of size %d is not divisible by %s", dim, dims[dim],
					formatAxisSizes(mesh, splitAxes)))
				continue
			}
			axes[dim] = splitAxes
		}
	}
	split := func(i int, splitAxes []string) {
		dim, text := largestDim(mesh, splitAxes, dims, axes)
		if text != "" {
			addMiss(&unsplit, i, text)
		}
		if dim >= 0 {
			axes[dim], _ = region.NontrivialAxes(mesh, splitAxes)
			addRule(i)
		}
	}
	owner, part := stateByName(path)
	for _, i := range largest {
		split(i, rules[i].Largest)
	}
	if state, i := rules.StateFor(path, dims); i >= 0 && state.Parts().Contains(part) {
		split(i, []string{ReplicaAxis})
	}
	parts := make([]sharding.Dim, len(dims))
	for dim, splitAxes := range axes {
		parts[dim].Axes = splitAxes
	}
	p.Spec, p.RuleText, p.UnsplitReason = sharding.NewSpec(parts...), strings.Join(applied, ", "), strings.Join(unsplit,
		"; ")
	if p.RuleText == "" {
		p.RuleText = "no rule"
	}
	if first < 0 && len(skipped) > 0 {
		p.RuleText += " (" + strings.Join(skipped, "; ") + ")"
	}
	if owner != "" && len(applied) > 0 {
		p.RuleText += ", as state of " + owner
	}
	return p, required
}

// largestDim returns the largest dimension that the named axes divide and that is not split yet, or
// the first of several such dimensions. If there is none, it returns -1 and the reason. The reason
// is empty if the axes have only one device or already split a dimension.
func largestDim(mesh sharding.Mesh, names []string, dims []int, split [][]string) (dim int, reason string) {
	axes, parts := region.NontrivialAxes(mesh, names)
	if parts < 2 {
		return -1, ""
	}
	for _, used := range split {
		for _, axis := range used {
			if slices.Contains(axes, axis) {
				return -1, "" // the annotation already uses the axis
			}
		}
	}
	dim = -1
	for i, size := range dims {
		if len(split[i]) == 0 && size > 0 && size%parts == 0 && (dim < 0 || size > dims[dim]) {
			dim = i
		}
	}
	if dim < 0 && slices.ContainsFunc(split, func(used []string) bool { return len(used) == 0 }) {
		reason = fmt.Sprintf("no dimension of %v is divisible by %s", dims, formatAxisSizes(mesh, axes))
	}
	return dim, reason
}
