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
	rest, _ = ir.Rewrite(rest, c.expand) // which gives no error
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

// set makes statements of the pass, and its arguments values that are made within.
func (c *computation) set(rest []*ir.Statement) {
	c.p.set(slices.Concat(c.before, rest))
	c.p.own = nil
	c.p.makes(nil)
	for _, v := range c.arguments {
		c.p.own[v] = true
	}
}

// place puts the computation in the place of the pass: gives are the pass's results inside, and at
// which results of the computation they are.
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

// leaving are the values outside that a pass gives, nil for one that nothing takes.
func (a *outline) leaving(p *part) []*ir.Value {
	all := make([]*ir.Value, len(p.Out))
	a.walk(a.root, func(_ *part, s *ir.Statement) {
		if m, ok := s.Mark.(exitMark); ok && m.pass == p.Pass {
			all[m.index] = s.Results[0]
		}
	})
	return all
}

// manualAxes are the axes of the mesh that the computation is manual over, in the mesh's order.
func (c *computation) manualAxes() []string {
	return c.a.w.mesh.SortAxes(c.a.w.factors.Pieces(c.axes...))
}

// without are the axes over which a crossing does not cut a tensor.
func (c *computation) without(cross region.Crossing) []string {
	cut := axesOf(cross)
	return slices.DeleteFunc(slices.Clone(c.axes), func(name string) bool { return slices.Contains(cut, name) })
}

// times makes out of in and the number of devices on axes.
func (c *computation) times(op string, out, in *ir.Value, axes []string) []*ir.Statement {
	n := c.a.w.trace.devices(axes)
	if n == 1 {
		return []*ir.Statement{unchanged(out, in)}
	}
	number := c.a.f.Fresh(in.Type)
	value := ir.Whole(n)
	switch {
	case in.Type.DType.IsComplex():
		value = ir.Number{Text: "(" + strconv.Itoa(n) + ".0, 0.0)"}
	case in.Type.DType.IsFloat():
		value = ir.Float(strconv.Itoa(n)+".0", float64(n))
	}
	return []*ir.Statement{constant(number, value), short(op, out, in, number)}
}

// total is what leaves of v: a gradient of what is equal on devices is summed over them.
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

// variation is the set of axes over which a value may vary: all where it is not known, as of a
// value that was made again.
func (c *computation) variation(v *ir.Value) axisSet {
	if set, known := c.a.vary.of[v]; known {
		return set
	}
	return ^axisSet(0)
}

// expand writes out what needs more than one statement: the sum of values that are equal on the
// devices, and the number of the device.
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

// number is the number of the device on axes: each device's own part of an iota.
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
