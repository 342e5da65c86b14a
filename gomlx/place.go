package gomlx

import (
	"fmt"
	"slices"
	"strings"

	"github.com/tpustrategy/tpustrategy/logical"
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

// isVariable reports whether a parameter is a variable: GoMLX gives it its path, which begins with a
// slash.
func isVariable(name string) bool { return strings.HasPrefix(name, "/") }

// PlaceData returns the placement of a parameter that is no variable: dimension 0 over the replicas if
// they divide it, and whole on every device otherwise.
func PlaceData(mesh sharding.Mesh, dims []int) Placement {
	p := Placement{Spec: sharding.Replicated(len(dims))}
	replicas, _ := mesh.AxisSize(logical.ReplicaName)
	switch {
	case len(dims) == 0:
		p.Why = "a scalar"
	case replicas < 2:
		p.Why = "one replica"
	case dims[0]%replicas != 0 || dims[0] == 0:
		p.Why = "data"
		p.Whole = fmt.Sprintf("dimension 0 of size %d is not divisible by replica=%d", dims[0], replicas)
	default:
		split := make([]sharding.Dim, len(dims))
		split[0].Axes = []string{logical.ReplicaName}
		p.Spec, p.Why = sharding.NewSpec(split...), "data"
	}
	return p
}

// Place returns the placement of a variable. The only errors are [*RuleError]s of rules that are
// Required. The rules must be valid for the mesh.
func (rules Rules) Place(mesh sharding.Mesh, path string, dims []int) (Placement, error) {
	p := Placement{}
	taken := false // by a rule with a split
	split := make([]sharding.Dim, len(dims))
	var why, whole, passed []string
	var more []int // rules for the largest dimension
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
	for i, r := range rules {
		if !r.Reaches(path, dims) {
			if rank := r.Split.Rank(); !taken && rank >= 0 && rank != len(dims) && len(dims) > 0 && r.names(path) {
				miss(&passed, i, fmt.Sprintf("it splits %d dimensions, and the variable has %d", rank, len(dims)))
			}
			continue
		}
		if len(r.Largest) > 0 {
			more = append(more, i)
			continue
		}
		if taken {
			continue
		}
		taken = true
		p.Rules = append(p.Rules, i)
		why = append(why, fmt.Sprintf("rule %d", i))
		if r.Split.Kind() == logical.KindReplicate {
			more = nil
			break
		}
		for dim, names := range r.Split.Axes() {
			axes, parts := divided(mesh, names)
			if parts > 1 && (dims[dim]%parts != 0 || dims[dim] == 0) {
				miss(&whole, i, fmt.Sprintf("dimension %d of size %d is not divisible by %s", dim, dims[dim], sizes(mesh, axes)))
				continue
			}
			split[dim].Axes = axes
		}
	}
	for _, i := range more {
		dim, text := largest(mesh, rules[i].Largest, dims, split)
		if text != "" {
			miss(&whole, i, text)
		}
		if dim < 0 {
			continue
		}
		split[dim].Axes, _ = divided(mesh, rules[i].Largest)
		why = append(why, fmt.Sprintf("rule %d", i))
		p.Rules = append(p.Rules, i)
	}
	p.Spec, p.Why, p.Whole = sharding.NewSpec(split...), strings.Join(why, ", "), strings.Join(whole, "; ")
	if p.Why == "" {
		p.Why = "no rule"
	}
	if !taken && len(passed) > 0 {
		p.Why += " (" + strings.Join(passed, "; ") + ")"
	}
	if of, ok := StateOf(path); ok && len(why) > 0 {
		p.Why += ", as state of " + of
	}
	return p, required
}

// largest returns the dimension that axes split: of those that they divide and that nothing splits,
// the largest, and of equal ones the first. It is -1, without a text, if there is nothing to split
// over.
func largest(mesh sharding.Mesh, names []string, dims []int, split []sharding.Dim) (dim int, text string) {
	axes, parts := divided(mesh, names)
	if parts < 2 {
		return -1, ""
	}
	for _, d := range split {
		for _, axis := range d.Axes {
			if slices.Contains(axes, axis) {
				return -1, "" // the split has said what is over the axis
			}
		}
	}
	dim = -1
	for i, size := range dims {
		if len(split[i].Axes) == 0 && size > 0 && size%parts == 0 && (dim < 0 || size > dims[dim]) {
			dim = i
		}
	}
	if dim < 0 {
		if !slices.ContainsFunc(split, func(d sharding.Dim) bool { return len(d.Axes) == 0 }) {
			return -1, "" // all are split
		}
		return -1, fmt.Sprintf("no dimension of %v is divisible by %s", dims, sizes(mesh, axes))
	}
	return dim, ""
}

// readAs returns how a program reads a variable that is in parts over the replicas: gathered over them,
// as the batch is over the replicas too, and a partitioner that is left the choice gathers the much
// larger activations. It is nil for other tensors. What an optimizer keeps of a variable is updated
// in parts.
func readAs(name string, spec sharding.Spec) *sharding.Spec {
	if _, state := StateOf(name); state || !isVariable(name) || !slices.Contains(spec.UsedAxes(), logical.ReplicaName) {
		return nil
	}
	dims := spec.Dims()
	for i := range dims {
		dims[i].Axes = slices.DeleteFunc(dims[i].Axes, func(axis string) bool { return axis == logical.ReplicaName })
	}
	inside := sharding.NewSpec(dims...)
	return &inside
}

// divided returns the axes of more than one device, and the number of parts that they make.
func divided(mesh sharding.Mesh, names []string) (axes []string, parts int) {
	parts = 1
	for _, name := range names {
		if size, _ := mesh.AxisSize(name); size > 1 {
			axes, parts = append(axes, name), parts*size
		}
	}
	return axes, parts
}

// sizes returns axes with their sizes, as replica=4, logical=2.
func sizes(mesh sharding.Mesh, axes []string) string {
	texts := make([]string, len(axes))
	for i, name := range axes {
		size, _ := mesh.AxisSize(name)
		texts[i] = fmt.Sprintf("%s=%d", name, size)
	}
	return strings.Join(texts, ", ")
}

// axesText returns all axes of a mesh with their sizes.
func axesText(mesh sharding.Mesh) string { return sizes(mesh, mesh.AxisNames()) }

func join(names []string) string { return strings.Join(names, ",") }
