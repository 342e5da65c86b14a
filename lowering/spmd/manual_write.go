package spmd

import (
	"slices"
	"strconv"
	"strings"

	"github.com/tpustrategy/tpustrategy/internal/region"
	"github.com/tpustrategy/tpustrategy/lowering/ir"
	"github.com/tpustrategy/tpustrategy/sharding"
)

// write writes the pass as a manual computation.
func (c *computation) write() {
	inside, outside, rest := c.p.arguments()
	for i, v := range inside {
		if v == nil {
			continue
		}
		spec, times := c.crossing(v.Type.Rank(), c.p.In[i]), c.without(c.p.In[i])
		if c.p.Forward == nil || len(times) == 0 {
			c.take(outside[i], v, spec)
			continue
		}
		whole := c.a.f.Fresh(v.Type)
		c.take(outside[i], whole, spec)
		c.before = append(c.before, c.times("stablehlo.divide", v, whole, times)...)
	}
	rest, _ = ir.Rewrite(rest, c.expand) // expand returns no error here
	c.set(rest)
	body := make([]*ir.Statement, len(rest))
	for i, s := range rest {
		body[i] = s.Reading(c.value)
	}
	gives, outsides := c.a.insides(c.p), c.a.leaving(c.p)
	at := make([]int, len(c.p.Out))
	for i, v := range gives {
		if v != nil {
			at[i] = len(c.given)
			c.give(c.total(v, c.p.Out[i]), c.crossing(v.Type.Rank(), c.p.Out[i]), nil)
			c.types[at[i]] = outsides[i].Type
		}
	}
	c.place("manual_", body, at, gives)
}

// set replaces the statements of the pass, and its arguments by values defined inside.
func (c *computation) set(rest []*ir.Statement) {
	c.p.set(slices.Concat(c.before, rest))
	c.p.own = nil
	c.p.makes(nil)
	for _, v := range c.arguments {
		c.p.own[v] = true
	}
}

// place replaces the pass by the computation. gives are the pass's results inside, and at are their
// indices among the computation's results.
func (c *computation) place(name string, body []*ir.Statement, at []int, gives []*ir.Value) {
	pack := name + c.a.f.Fresh(ir.Type{}).Name
	run := manual(pack, c.manualAxes(), c.operands, c.inSpecs, c.types, c.outSpecs,
		&ir.Region{Arguments: c.arguments, Body: slices.Concat(c.before, body, c.after, []*ir.Statement{give("sdy.return", c.given)})})
	all := append(slices.Clone(c.prepare), run)
	for i, v := range c.named {
		if v != nil {
			all = append(all, unchanged(v, run.Results[i]))
		}
	}
	c.p.set(all)
	results := make([]*ir.Value, len(c.p.Out))
	for i, v := range gives {
		if v != nil {
			results[i] = run.Results[at[i]]
		}
	}
	c.a.results(c.p, results)
}

// leaving returns the values outside that a pass defines. An unused result is nil.
func (a *outline) leaving(p *part) []*ir.Value {
	all := make([]*ir.Value, len(p.Out))
	a.walk(a.root, func(_ *part, s *ir.Statement) {
		if m, ok := s.Mark.(exitMark); ok && m.pass == p.Pass {
			all[m.index] = s.Results[0]
		}
	})
	return all
}

// manualAxes returns the mesh axes over which the computation is manual, in mesh order.
func (c *computation) manualAxes() []string {
	return c.a.w.mesh.SortAxes(c.a.w.factors.Pieces(c.axes...))
}

// without returns the axes over which a crossing does not split a tensor.
func (c *computation) without(cross region.Crossing) []string {
	cut := axesOf(cross)
	return slices.DeleteFunc(slices.Clone(c.axes), func(name string) bool { return slices.Contains(cut, name) })
}

// times applies op to in and the number of devices on axes.
func (c *computation) times(op string, out, in *ir.Value, axes []string) []*ir.Statement {
	n := c.a.w.trace.devices(axes)
	if n == 1 {
		return []*ir.Statement{unchanged(out, in)}
	}
	number := c.a.f.Fresh(in.Type)
	value := ir.Integer(n)
	switch {
	case in.Type.DType.IsComplex():
		value = ir.Number{Text: "(" + strconv.Itoa(n) + ".0, 0.0)"}
	case in.Type.DType.IsFloat():
		value = ir.Float(strconv.Itoa(n)+".0", float64(n))
	}
	return []*ir.Statement{constant(number, value), short(op, out, in, number)}
}

// total returns the result for v: the gradient of a value that is equal on devices is summed over
// them.
func (c *computation) total(v *ir.Value, cross region.Crossing) *ir.Value {
	in := c.value(v)
	axes := c.without(cross)
	if c.p.Forward == nil || len(axes) == 0 || v.Type.Empty() {
		return in
	}
	var equal, differ []string
	set := c.variation(v)
	for _, name := range axes {
		if set&c.a.w.trace.axisSet(name) == 0 {
			equal = append(equal, name)
		} else {
			differ = append(differ, name)
		}
	}
	if len(equal) > 0 {
		out := c.a.f.Fresh(v.Type)
		c.after = append(c.after, c.times("stablehlo.multiply", out, in, equal)...)
		in = out
	}
	if len(differ) > 0 {
		out := c.a.f.Fresh(v.Type)
		c.after = append(c.after, &ir.Statement{Operands: []*ir.Value{in}, Results: []*ir.Value{out}, Mark: amongMark{differ, region.AllReduce{Axes: differ}}})
		in = out
	}
	return in
}

// variation returns the axes over which a value may vary. It returns all axes for an unknown value,
// such as a recomputed one.
func (c *computation) variation(v *ir.Value) axisSet {
	if set, known := c.a.vary.of[v]; known {
		return set
	}
	return ^axisSet(0)
}

// expand rewrites marks that require several statements: the sum of values that are equal on the
// devices, and the device number.
func (c *computation) expand(s *ir.Statement) ([]*ir.Statement, error) {
	switch m := s.Mark.(type) {
	case numberMark:
		if len(m.axes) > 0 {
			s = unchanged(s.Results[0], c.number(m.axes))
		}
	case amongMark:
		reduced, ok := m.op.(region.AllReduce)
		in := s.Operands[0]
		switch {
		case !ok || c.variation(in)&c.a.w.trace.axisSet(m.axes...) != 0:
		case reduced.By == region.Sum:
			return c.times("stablehlo.multiply", s.Results[0], in, m.axes), nil
		default:
			s = unchanged(s.Results[0], in)
		}
	}
	return []*ir.Statement{s}, nil
}

// number returns the number of the device on axes: each device's slice of an iota.
func (c *computation) number(axes []string) *ir.Value {
	key := strings.Join(axes, "$")
	if c.numbers[key] == nil {
		n := c.a.w.trace.devices(axes)
		all, own, number := c.a.f.Fresh(int32s.Stacked(n)), c.a.f.Fresh(int32s.Stacked(1)), c.a.f.Fresh(int32s)
		c.prepare = append(c.prepare, counted(all))
		c.take(all, own, sharding.NewSpec(sharding.Dim{Axes: c.a.w.factors.Pieces(axes...)}))
		c.before = append(c.before, unchanged(number, own))
		c.numbers[key] = number
	}
	return c.numbers[key]
}
