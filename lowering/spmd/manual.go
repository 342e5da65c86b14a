package spmd

import (
	"fmt"
	"slices"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/internal/region"
	"github.com/tpustrategy/tpustrategy/lowering/ir"
	"github.com/tpustrategy/tpustrategy/sharding"
)

// A pass through a manual region becomes a computation that is manual over the region's axes.
// Values from outside are operands. Values for its backward passes are results: stacks over the
// devices, of which each device has its own slice.
//
// The gradients are the gradients of the sum of the results of all devices. A result that is equal
// on n devices counts once, so its adjoint is divided by n on each device. The gradient of an
// argument that is equal on several devices is summed over them. The adjoints of collectives follow
// from these two rules. A sum of a value that is known to be equal on the devices is written as a
// multiplication.

// manual writes the passes of a manual region.
func (a *outline) manual(forward *part) error {
	w := a.w
	axes := w.trace.divided(forward.Kind.(region.Manual).Axes)
	if w.single() || len(axes) == 0 {
		a.inlined(forward)
		return nil
	}
	k, all, stacks, err := a.computations(forward, axes)
	if err != nil {
		return err
	}
	for _, v := range k.kept {
		if v.Type.Empty() {
			continue
		}
		c := all[0]
		c.give(c.stacked(v), c.stack(v.Type.Rank()+1), stacks[v])
	}
	for _, c := range all {
		c.write()
	}
	return nil
}

// computations creates the passes of a region as computations that are manual over axes, the
// forward pass first. The keeper then has the values that the backward passes read, and stacks
// contains their stacks outside.
func (a *outline) computations(forward *part, axes []string) (k *keeper, all []*computation, stacks map[*ir.Value]*ir.Value, err error) {
	k = newKeeper(a.f, forward, region.Keep{})
	for v := range k.made {
		k.given[v] = flowing
	}
	stacks = map[*ir.Value]*ir.Value{}
	for _, p := range forward.backward {
		c := a.computation(p, axes)
		c.recall(k, stacks)
		all = append(all, c)
	}
	first := a.computation(forward, axes)
	return k, slices.Insert(all, 0, first), stacks, first.escape(forward.backward)
}

// inlined writes the passes of a region inline, if there is only one device.
func (a *outline) inlined(forward *part) {
	for _, p := range forward.backward {
		a.inline(p)
	}
	a.inline(forward)
}

// computation is a pass that is written as a manual computation.
type computation struct {
	a       *outline
	p       *part
	axes    []string // the axes with more than one device
	devices int
	open    bool // the partitioner may use other axes of the replica

	operands, arguments []*ir.Value // outside, and inside
	inSpecs, outSpecs   []sharding.Spec
	given               []*ir.Value // inside
	types               []ir.Type   // of the results, outside
	named               []*ir.Value // outside: values defined by the results, besides exit marks
	before, after       []*ir.Statement
	prepare             []*ir.Statement // outside
	inside              map[*ir.Value]*ir.Value
	numbers             map[string]*ir.Value
}

func (a *outline) computation(p *part, axes []string) *computation {
	t := a.w.trace
	return &computation{a: a, p: p, axes: axes, devices: t.devices(axes), inside: map[*ir.Value]*ir.Value{}, numbers: map[string]*ir.Value{},
		open: len(t.divided(t.mesh.AxisNames())) > len(axes)}
}

// spec returns the sharding of a tensor whose dimensions are split over logical axes. Further
// dimensions are not split.
func (c *computation) spec(rank int, axes [][]string) sharding.Spec {
	dims := make([]sharding.Dim, rank)
	for i := range dims {
		dims[i].Open = c.open
		if i < len(axes) {
			dims[i].Axes = c.a.w.factors.Pieces(c.a.w.trace.divided(axes[i])...)
		}
	}
	spec := sharding.NewSpec(dims...)
	if c.open { // the partitioner may split further, but not over the manual axes
		used := spec.UsedAxes()
		whole := slices.DeleteFunc(c.manualAxes(), func(name string) bool { return slices.Contains(used, name) })
		spec = spec.WithReplicated(whole...)
	}
	return spec
}

func (c *computation) crossing(rank int, cross region.Crossing) sharding.Spec {
	shard, _ := cross.(region.Shard)
	names := make([][]string, len(shard.Axes))
	for i, axes := range shard.Axes {
		for _, axis := range axes {
			names[i] = append(names[i], axis.Name)
		}
	}
	return c.spec(rank, names)
}

// stack returns the sharding of values that are stacked over the devices.
func (c *computation) stack(rank int) sharding.Spec { return c.spec(rank, [][]string{c.axes}) }

// take makes the value outside an operand. argument is its value inside.
func (c *computation) take(outside, argument *ir.Value, spec sharding.Spec) {
	c.operands, c.arguments, c.inSpecs = append(c.operands, outside), append(c.arguments, argument), append(c.inSpecs, spec)
}

// give makes v, a value inside, a result. outside is the value that the result defines, or nil for
// a result with an exit mark.
func (c *computation) give(v *ir.Value, spec sharding.Spec, outside *ir.Value) {
	t := v.Type
	if outside != nil {
		t = outside.Type
	}
	c.given, c.outSpecs, c.types, c.named = append(c.given, v), append(c.outSpecs, spec), append(c.types, t), append(c.named, outside)
}

// stacked returns a device's slice of the stack of a value.
func (c *computation) stacked(v *ir.Value) *ir.Value {
	slot := c.a.f.Fresh(v.Type.Stacked(1))
	c.after = append(c.after, unchanged(slot, c.value(v)))
	return slot
}

// value returns the value inside for a value outside: a constant is repeated, and other values are
// operands that are equal on all devices.
func (c *computation) value(v *ir.Value) *ir.Value {
	if in, ok := c.inside[v]; ok {
		return in
	}
	if c.p.makes(v) {
		return v
	}
	in := c.a.f.Fresh(v.Type)
	if s := c.a.constants[v]; s != nil {
		copied := *s
		copied.Results = []*ir.Value{in}
		c.before = append(c.before, &copied)
	} else {
		c.take(v, in, c.spec(v.Type.Rank(), nil))
	}
	c.inside[v] = in
	return in
}

// recall replaces the values of the forward pass that a backward pass reads: by the arguments
// again, and by the stacks of kept values.
func (c *computation) recall(k *keeper, stacks map[*ir.Value]*ir.Value) {
	r := &remake{keeper: k, has: map[*ir.Value]*ir.Value{}}
	r.read = func(v *ir.Value) *ir.Value {
		out := c.a.f.Fresh(v.Type)
		if i, ok := k.argument[v]; ok {
			c.take(k.outside[i], out, c.crossing(v.Type.Rank(), k.forward.In[i]))
			return out
		}
		if v.Type.Empty() {
			r.body = append(r.body, empty(out))
			return out
		}
		if stacks[v] == nil {
			stacks[v] = c.a.f.Fresh(v.Type.Stacked(c.devices))
		}
		slot := c.a.f.Fresh(v.Type.Stacked(1))
		c.take(stacks[v], slot, c.stack(slot.Type.Rank()))
		r.body = append(r.body, unchanged(out, slot))
		return out
	}
	r.backward(c.a, c.p)
}

// makes reports whether a value is defined in a part, including its arguments and nested
// statements.
func (p *part) makes(v *ir.Value) bool {
	if p.own == nil {
		p.own = map[*ir.Value]bool{}
		var own func(all []*ir.Statement)
		own = func(all []*ir.Statement) {
			for _, s := range all {
				for _, v := range s.Results {
					p.own[v] = true
				}
				for _, r := range s.Regions {
					for _, v := range r.Arguments {
						p.own[v] = true
					}
					own(r.Body)
				}
			}
		}
		own(p.statements())
	}
	return p.own[v]
}

// escape makes values results that are read outside the region without an exit mark, such as the
// state of a random generator. They are equal on all devices.
func (c *computation) escape(backward []*part) error {
	outside := map[*ir.Value]*ir.Value{}
	var differs *ir.Value
	for _, p := range backward {
		p.excluded = true
	}
	c.p.excluded = true
	c.a.replace(func(s *ir.Statement) *ir.Statement {
		if m, ok := s.Mark.(exitMark); ok && m.pass == c.p.Pass {
			return s
		}
		return s.Reading(func(v *ir.Value) *ir.Value {
			if !c.p.makes(v) {
				return v
			}
			if outside[v] == nil {
				outside[v] = c.a.f.Fresh(v.Type)
				if c.a.vary.of[v]&c.a.w.trace.axisSet(c.axes...) != 0 {
					differs = v
				}
				c.give(v, c.spec(v.Type.Rank(), nil), outside[v])
			}
			return outside[v]
		})
	})
	for _, p := range append(backward, c.p) {
		p.excluded = false
	}
	if differs != nil {
		return &errkind.Fault{Op: "manual:", Subject: fmt.Sprintf("a value of type %s", differs.Type),
			Reason: "it is made inside of the region, differs between the devices, and is used outside", Hint: "return it from the region, with a spec", Class: errkind.ValueError}
	}
	return nil
}
