package weights

import (
	"fmt"
	"slices"
	"strings"
)

// assignTensors determines which range of the variable at path is filled by which tensor. It adds
// mismatches to the planner.
func (m *planner) assignTensors(path string) {
	found, v := m.candidates[path], m.variables[path]
	fail := func(c *candidate, problem MismatchKind, hint, format string, args ...any) {
		f := Mismatch{Kind: problem, Variable: path, Detail: fmt.Sprintf(format, args...), Hint: hint}
		if c != nil {
			f.Tensor = c.tensor.Name
		}
		m.mismatches = append(m.mismatches, f)
	}
	if len(found) == 0 {
		if !v.Optional && !m.reported[path] {
			fail(nil, Missing, "add a rule for it, or let it keep its value", "%s%v, which no tensor fills", v.DType, v.Shape)
		}
		return
	}
	if v == nil {
		v = &Variable{Path: path, DType: m.opts.Create, Shape: inferShape(found)}
	}
	numMismatches := len(m.mismatches)
	var pieces []variableBox
	layers := 0
	for i := range found {
		c := &found[i]
		layers = max(layers, c.stackIndex+1)
		if c.stackIndex >= 0 && (len(v.Shape) == 0 || c.stackIndex >= v.Shape[0]) {
			continue // reported once, below
		}
		if p, ok := m.placeTensor(c, v, fail); ok {
			pieces = append(pieces, p)
		}
	}
	if len(v.Shape) == 0 && layers > 0 {
		fail(&found[0], ShapeMismatch, "leave Stack out of the rule", "a slice of a scalar")
	} else if layers > 0 && layers > v.Shape[0] {
		fail(nil, Unused, fmt.Sprintf("make the model with %d layers, or ignore the files' others", layers),
			"it is a stack of %d layers, %v, and the files have %d layers", v.Shape[0], v.Shape, layers)
	}
	if len(m.mismatches) > numMismatches {
		return
	}
	m.checkCoverage(v, pieces, fail)
	m.plan.variables = append(m.plan.variables, variablePlan{*v, pieces})
}

func inferShape(found []candidate) []int {
	first := found[0]
	shape, layers := first.view.shape(), 0
	if p := first.target.Segment; p != nil && p.Dim < len(shape) && p.Parts > 0 {
		shape[p.Dim] *= p.Parts
	}
	for _, c := range found {
		layers = max(layers, c.stackIndex+1)
		if p := c.target.Segment; p != nil && p.Parts == 0 && p.Dim < len(shape) && p.Dim < len(c.view.dims) {
			shape[p.Dim] = max(shape[p.Dim], p.Start+c.view.shape()[p.Dim])
		}
	}
	if layers > 0 {
		return append([]int{layers}, shape...)
	}
	return shape
}

// placeTensor returns the box (rectangular range) of the variable that a tensor fills. It returns
// false if the tensor does not match the variable.
func (m *planner) placeTensor(c *candidate, v *Variable, fail func(*candidate, MismatchKind, string, string,
	...any)) (variableBox, bool) {
	p := variableBox{tensor: c.tensor.Name, start: make([]int, len(v.Shape)), size: slices.Clone(v.Shape), view: c.view,
		add: c.target.Add}
	lead := 0
	if c.stackIndex >= 0 {
		lead = 1
		p.start[0], p.size[0] = c.stackIndex, 1
		p.view.dims = append([][]strideFactor{{{1, 1}}}, p.view.dims...)
	}
	shape := c.view.shape()
	mismatch := func() (variableBox, bool) {
		want := "the variable is " + fmt.Sprint(v.Shape)
		if lead > 0 {
			want = fmt.Sprintf("a layer of the variable %v is %v", v.Shape, v.Shape[1:])
		}
		if c.target.Segment != nil {
			want += fmt.Sprintf(", of which it is a part along dimension %d", c.target.Segment.Dim)
		}
		fail(c, ShapeMismatch, suggestFix(shape, v.Shape[lead:]), "the tensor %v becomes %v, and %s", c.tensor.Shape, shape,
			want)
		return p, false
	}
	if len(shape) != len(v.Shape)-lead {
		return mismatch()
	}
	if part := c.target.Segment; part != nil {
		if part.Dim >= len(shape) {
			return mismatch()
		}
		d := lead + part.Dim
		start, size := part.Start, shape[part.Dim]
		if part.Parts > 0 {
			if v.Shape[d]%part.Parts != 0 {
				return mismatch()
			}
			size = v.Shape[d] / part.Parts
			start = part.Index * size
		}
		if start+size > v.Shape[d] {
			return mismatch()
		}
		p.start[d], p.size[d] = start, size
	}
	if !slices.Equal(shape, p.size[lead:]) {
		return mismatch()
	}
	if _, err := newConversion(c.tensor.DType, v.DType, 0); err != nil {
		fail(c, DTypeMismatch, "", "%v", err)
		return p, false
	}
	if c.target.Add != 0 && !v.DType.IsFloat() {
		fail(c, DTypeMismatch, "leave Add out of the rule", "%v is added to a variable of %s", c.target.Add, v.DType)
		return p, false
	}
	return p, true
}

func suggestFix(actual, want []int) string {
	a, b := slices.Clone(actual), slices.Clone(want)
	slices.Sort(a)
	slices.Sort(b)
	switch {
	case slices.Equal(a, b) && len(actual) == 2:
		return "add the step {Transpose: []int{1, 0}}"
	case slices.Equal(a, b):
		return "add a step that transposes the dimensions"
	case numElements(actual) == numElements(want):
		return fmt.Sprintf("add steps that reshape and transpose it to %v", want)
	}
	return "make the model with the sizes of the files, see their config.json"
}

// checkCoverage reports elements of a variable that are filled by no tensor or by several tensors.
func (m *planner) checkCoverage(v *Variable, pieces []variableBox,
	fail func(*candidate, MismatchKind, string, string, ...any)) {
	filled, all := 0, numElements(v.Shape)
	stacked := map[int][]*variableBox{} // boxes with one index in the first dimension, by that index
	var rest []*variableBox
	for i := range pieces {
		p := &pieces[i]
		filled += numElements(p.size)
		var others []*variableBox
		if len(p.size) > 0 && p.size[0] == 1 {
			others = append(slices.Clone(rest), stacked[p.start[0]]...)
			stacked[p.start[0]] = append(stacked[p.start[0]], p)
		} else {
			for j := range i {
				others = append(others, &pieces[j])
			}
			rest = append(rest, p)
		}
		for _, o := range others {
			if boxesOverlap(p, o) {
				fail(&candidate{tensor: m.plan.tensors[p.tensor]}, Duplicate, "let one tensor fill each part",
					"tensor %q fills the same elements", o.tensor)
				return
			}
		}
	}
	if filled == all {
		return
	}
	var lacking []string
	if len(rest) == 0 && len(v.Shape) > 0 {
		for i := range v.Shape[0] {
			if stacked[i] == nil {
				lacking = append(lacking, fmt.Sprint(i))
			}
		}
	}
	if lacking != nil {
		fail(nil, Missing, fmt.Sprintf("make the model with %d layers, or give it files that have them", len(stacked)),
			"it is a stack of %d layers, %v, and the files have no layer %s", v.Shape[0], v.Shape, joinAbbreviated(lacking))
		return
	}
	fail(nil, Missing, "add rules for the rest", "the tensors fill %d of the %d elements of %v", filled, all, v.Shape)
}

// joinAbbreviated joins a list with commas. It replaces the middle of a long list with dots.
func joinAbbreviated(items []string) string {
	if len(items) > 4 {
		items = []string{items[0], items[1], "...", items[len(items)-1]}
	}
	return strings.Join(items, ", ")
}

func boxesOverlap(a, b *variableBox) bool {
	for d := range a.size {
		if a.start[d]+a.size[d] <= b.start[d] || b.start[d]+b.size[d] <= a.start[d] {
			return false
		}
	}
	return true
}
