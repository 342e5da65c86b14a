package logical

import (
	"fmt"
	"slices"
	"strings"

	"github.com/tpustrategy/tpustrategy/internal/region"
	"github.com/tpustrategy/tpustrategy/sharding"
)

// Placement says how a tensor is laid over the mesh, and why.
type Placement struct {
	// Spec has an entry for each dimension. It names no axis of one device.
	Spec sharding.Spec
	// Rules are the indexes of the rules that the placement follows from, and of those that it cannot
	// follow.
	Rules []int
	// Whole says in words why dimensions that were to be split are not; empty if all are.
	Whole string
	// Why says in words what the placement follows from.
	Why string
}

// Place returns the placement of a variable by rules that name axes. A dimension that its axes do not
// divide stays whole. The only errors are [*RuleError]s of rules that are Required. The rules must be
// valid for the mesh.
func (rules Rules) Place(mesh sharding.Mesh, path string, dims []int) (Placement, error) {
	p := Placement{}
	axes := make([][]string, len(dims))
	var why, whole, passed []string
	var required error
	miss := func(to *[]string, i int, text string) {
		if !slices.Contains(p.Rules, i) {
			p.Rules = append(p.Rules, i)
		}
		*to = append(*to, fmt.Sprintf("rule %d: %s", i, text))
		if rules[i].Required && required == nil {
			required = &RuleError{Rule: i, Text: rules[i].String(), Variable: path, Shape: slices.Clone(dims), Reason: text,
				Hint: "change the rule, pad the dimension, or leave required out"}
		}
	}
	follow := func(i int) {
		why, p.Rules = append(why, fmt.Sprintf("rule %d", i)), append(p.Rules, i)
	}
	first, more := rules.reaching(path, dims)
	for i, r := range rules {
		if rank := r.Annotation.Rank(); (first < 0 || i < first) && rank >= 0 && rank != len(dims) && len(dims) > 0 && r.matches(path) {
			miss(&passed, i, fmt.Sprintf("it splits %d dimensions, and the variable has %d", rank, len(dims)))
		}
	}
	if first >= 0 {
		follow(first)
		for dim, names := range rules[first].Annotation.axes {
			over, parts := region.Divided(mesh, names)
			if parts > 1 && (dims[dim]%parts != 0 || dims[dim] == 0) {
				miss(&whole, first, fmt.Sprintf("dimension %d of size %d is not divisible by %s", dim, dims[dim], sizesText(mesh, over)))
				continue
			}
			axes[dim] = over
		}
	}
	split := func(i int, over []string) {
		dim, text := largest(mesh, over, dims, axes)
		if text != "" {
			miss(&whole, i, text)
		}
		if dim >= 0 {
			axes[dim], _ = region.Divided(mesh, over)
			follow(i)
		}
	}
	of, level := stateByName(path)
	for _, i := range more {
		split(i, rules[i].Largest)
	}
	if state, i := rules.State(path, dims); i >= 0 && state >= level {
		split(i, []string{ReplicaName})
	}
	parts := make([]sharding.Dim, len(dims))
	for dim, over := range axes {
		parts[dim].Axes = over
	}
	p.Spec, p.Why, p.Whole = sharding.NewSpec(parts...), strings.Join(why, ", "), strings.Join(whole, "; ")
	if p.Why == "" {
		p.Why = "no rule"
	}
	if first < 0 && len(passed) > 0 {
		p.Why += " (" + strings.Join(passed, "; ") + ")"
	}
	if of != "" && len(why) > 0 {
		p.Why += ", as state of " + of
	}
	return p, required
}

// largest returns the dimension that axes split: of those that they divide and that nothing splits,
// the largest, and of equal ones the first. It is -1, without a text, if there is nothing to split
// over.
func largest(mesh sharding.Mesh, names []string, dims []int, split [][]string) (dim int, text string) {
	axes, parts := region.Divided(mesh, names)
	if parts < 2 {
		return -1, ""
	}
	for _, over := range split {
		for _, axis := range over {
			if slices.Contains(axes, axis) {
				return -1, "" // the split has said what is over the axis
			}
		}
	}
	dim = -1
	for i, size := range dims {
		if len(split[i]) == 0 && size > 0 && size%parts == 0 && (dim < 0 || size > dims[dim]) {
			dim = i
		}
	}
	if dim < 0 && slices.ContainsFunc(split, func(over []string) bool { return len(over) == 0 }) {
		text = fmt.Sprintf("no dimension of %v is divisible by %s", dims, sizesText(mesh, axes))
	}
	return dim, text
}
