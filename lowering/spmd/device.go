package spmd

import (
	"fmt"
	"slices"

	"github.com/tpustrategy/tpustrategy/internal/region"
	"github.com/tpustrategy/tpustrategy/lowering/ir"
)

// A region on one logical device inside another region, such as in a loop body, becomes a
// computation that is manual over all logical axes. Its statements are in a branch that only the
// one device takes. The other devices have zeros, and the results are sent to all devices, as for
// the regions of the step itself (region.go). Values for its backward passes stay on the device, in
// stacks over the devices.

// hostsDevice returns an error if a region of one logical device cannot begin here.
func (t *Trace) hostsDevice(kind region.Kind) error {
	if _, ok := kind.(region.On); !ok {
		return nil
	}
	if t.InRegion() {
		return misplaced(t.opts.LogicalDevices, "inside another region", "close the first region before the second")
	}
	for _, p := range t.Open() {
		if _, manual := p.Kind.(region.Manual); manual {
			return misplaced(t.opts.LogicalDevices, fmt.Sprintf("inside a region (%s) in which every device runs on shards of its own", p.Kind), "put it before or after that region")
		}
	}
	return nil
}

// device writes the passes of a region on one logical device.
func (a *outline) device(forward *part) error {
	t := a.w.trace
	axes := t.divided(t.mesh.AxisNames())
	if a.w.single() || len(axes) == 0 {
		a.inlined(forward)
		return nil
	}
	k, all, stacks, err := a.computations(forward, axes)
	if err != nil {
		return err
	}
	for n, c := range all {
		if n > 0 {
			k.kept = nil // the forward pass already returned them
		}
		if err := c.alone(forward.Kind.(region.On).Device, k.kept, stacks); err != nil {
			return err
		}
	}
	return nil
}

// alone writes the pass as a computation of one device. kept are values that stay on the device.
func (c *computation) alone(device int, kept []*ir.Value, stacks map[*ir.Value]*ir.Value) error {
	inside, outside, rest := c.p.arguments()
	if err := c.a.w.runsAlone(rest); err != nil {
		return err
	}
	for i, v := range inside {
		switch {
		case v == nil:
		case v.Type.Empty():
			c.before = append(c.before, empty(v))
		default:
			c.take(outside[i], v, c.spec(v.Type.Rank(), nil))
		}
	}
	assigned, from := c.a.f.Fresh(int32s), c.a.f.Fresh(int32s)
	this := c.number(c.axes)
	c.before = append(c.before, constant(assigned, ir.Integer(device)), short("stablehlo.subtract", from, this, assigned))
	c.set(rest)
	run := make([]*ir.Statement, len(rest))
	for i, s := range rest {
		run[i] = s.Reading(c.value)
	}
	var results, zeros []*ir.Value
	var send []func(out *ir.Value)
	branch := func(v *ir.Value, after func(made *ir.Value)) {
		results, zeros, send = append(results, c.value(v)), append(zeros, c.a.f.Fresh(v.Type)), append(send, after)
	}
	// Escaped values are already in c.given. They leave like results.
	escaped := slices.Clone(c.given)
	leave := func(v *ir.Value, at int) {
		out := c.a.f.Fresh(v.Type)
		c.given[at] = out
		if v.Type.Empty() {
			c.after = append(c.after, empty(out))
			return
		}
		branch(v, func(made *ir.Value) { c.after = append(c.after, c.sent(out, made)) })
	}
	for i, v := range escaped {
		leave(v, i)
	}
	gives, leaving := c.a.insides(c.p), c.a.leaving(c.p)
	at := make([]int, len(gives))
	for i, v := range gives {
		if v != nil {
			at[i] = len(c.given)
			c.give(v, c.spec(v.Type.Rank(), nil), nil)
			c.types[at[i]] = leaving[i].Type
			leave(v, at[i])
		}
	}
	for _, v := range kept {
		if v.Type.Empty() {
			continue
		}
		slot := c.a.f.Fresh(v.Type.Stacked(1))
		c.give(slot, c.stack(slot.Type.Rank()), stacks[v])
		branch(v, func(made *ir.Value) { c.after = append(c.after, unchanged(slot, made)) })
	}
	var body []*ir.Statement
	if len(results) > 0 {
		branches := where0(from, c.a.f.Fresh(ir.Type{}).Name, run, results, zeros)
		for i, made := range branches.Results {
			send[i](made)
		}
		body = append(body, branches)
	}
	c.place("on_", body, at, gives)
	return nil
}

// sent returns to all devices the value of the device that has it.
func (c *computation) sent(out, in *ir.Value) *ir.Statement {
	return &ir.Statement{Operands: []*ir.Value{in}, Results: []*ir.Value{out}, Mark: amongMark{c.axes, region.AllReduce{Axes: c.axes, By: region.Only}}}
}
