package spmd

import (
	"cmp"
	"slices"

	"github.com/tpustrategy/tpustrategy/internal/region"
	"github.com/tpustrategy/tpustrategy/lowering/ir"
)

// loop writes each pass of a loop as one stablehlo.while.
func (a *outline) loop(forward *part) {
	kind := forward.Kind.(region.Loop)
	k := newKeeper(a.f, forward, kind.Keep)
	backward := make([]*cycle, len(forward.backward))
	for n, p := range forward.backward {
		backward[n] = a.cycle(p, kind.N, true)
		backward[n].recall(k)
	}
	c := a.cycle(forward, kind.N, false)
	for _, v := range k.kept {
		if k.hosted(v) {
			there := a.f.Like(v)
			c.p.add(inMemory(pinnedHost, there, v))
			v = there
		}
		c.stack(v)
	}
	c.write()
	stacks := c.loop.Results[len(c.loop.Results)-len(k.kept):]
	for n, b := range backward {
		b.write()
		// The stacks of the loop have their final names now.
		known := map[*ir.Value]*ir.Value{}
		for i, v := range k.kept {
			known[backward[n].stacks[v]] = stacks[i]
		}
		b.rename(known)
	}
}

// cycle is a pass that is written as a loop.
type cycle struct {
	a       *outline
	p       *part
	n       int
	reverse bool

	index                    *ir.Value
	body                     []*ir.Statement
	start, argument, next    []*ir.Value // carried values: initial, in an iteration, and updated
	prepare                  []*ir.Statement
	zero                     *ir.Value
	inside, outside, results []*ir.Value
	loop                     *ir.Statement

	stacks map[*ir.Value]*ir.Value // stacks of kept values, by their names in this pass
}

func (a *outline) cycle(p *part, n int, reverse bool) *cycle {
	c := &cycle{a: a, p: p, n: n, reverse: reverse, stacks: map[*ir.Value]*ir.Value{}}
	c.inside, c.outside, _ = p.arguments()
	count := a.f.Fresh(int32s)
	c.zero = a.f.Fresh(int32s)
	c.start, c.argument = []*ir.Value{a.f.Fresh(int32s)}, []*ir.Value{count}
	c.prepare = append(c.prepare, constant(c.start[0], ir.Integer(0)))
	c.body = append(c.body, constant(c.zero, ir.Integer(0)))
	c.index = count
	if reverse {
		last := a.f.Fresh(int32s)
		c.index = a.f.Fresh(int32s)
		c.body = append(c.body, constant(last, ir.Integer(n-1)), short("stablehlo.subtract", c.index, last, count))
	}
	one, next := a.f.Fresh(int32s), a.f.Fresh(int32s)
	c.body = append(c.body, constant(one, ir.Integer(1)), short("stablehlo.add", next, count, one))
	c.next = []*ir.Value{next}
	return c
}

// slice returns the statements for the slice of a stack for this iteration.
func (c *cycle) slice(out, stack *ir.Value) {
	sizes := append([]int{1}, stack.Type.Dims[1:]...)
	cut := c.a.f.Fresh(stack.Type.With(sizes...))
	cut.Origin = out.Origin
	c.body = append(c.body, inline("stablehlo.dynamic_slice", cut, c.starts(stack)...).With("slice_sizes", ir.Ints(sizes)), unchanged(out, cut))
}

// starts returns the operands of an op on a stack, followed by the start indices of this
// iteration's slice.
func (c *cycle) starts(operands ...*ir.Value) []*ir.Value {
	return slices.Concat(operands, []*ir.Value{c.index}, slices.Repeat([]*ir.Value{c.zero}, operands[0].Type.Rank()-1))
}

// carry adds a state with zeros as its initial value, and returns its value in an iteration.
func (c *cycle) carry(t ir.Type) *ir.Value {
	start, argument := c.a.f.Fresh(t), c.a.f.Fresh(t)
	c.prepare = append(c.prepare, constant(start, ir.Zero(t.DType)))
	c.start, c.argument = append(c.start, start), append(c.argument, argument)
	return argument
}

// stack adds a stack with the values of v in all iterations.
func (c *cycle) stack(v *ir.Value) {
	all := c.carry(v.Type.Stacked(c.n))
	row, next := c.a.f.Fresh(v.Type.Stacked(1)), c.a.f.Fresh(all.Type)
	row.Origin, next.Origin = v.Origin, v.Origin
	c.results = append(c.results, nil)
	c.p.add(unchanged(row, v), inline("stablehlo.dynamic_update_slice", next, c.starts(all, row)...))
	c.next = append(c.next, next)
}

// recall replaces the values of the forward pass that a backward pass reads.
func (c *cycle) recall(k *keeper) {
	r := &remake{keeper: k, has: map[*ir.Value]*ir.Value{}}
	r.read = func(v *ir.Value) *ir.Value {
		out := c.a.f.Like(v)
		stack, kept := c.stacks[v], true
		if i, ok := k.argument[v]; ok {
			switch k.forward.In[i].(type) {
			case region.Same:
				return k.outside[i]
			case region.Slice:
				stack, kept = k.outside[i], false
			}
		}
		if stack == nil {
			stack = c.a.f.Fresh(v.Type.Stacked(c.n))
			c.stacks[v] = stack
		}
		before := c.body
		c.body = nil
		c.slice(out, stack)
		r.body = append(r.body, c.body...)
		c.body = before
		if kept && k.hosted(v) {
			here := c.a.f.Like(v)
			r.body = append(r.body, inMemory(deviceMemory, here, out))
			return here
		}
		return out
	}
	r.backward(c.a, c.p)
}

// write writes the pass as a loop. The results are defined after it.
func (c *cycle) write() {
	gives := c.a.insides(c.p)
	read := c.p.read(gives)
	kept, keptNext := c.start[1:], c.next[1:]
	keptArguments := c.argument[1:]
	c.start, c.next, c.argument = c.start[:1:1], c.next[:1:1], c.argument[:1:1]
	// The states come first: package region ensures that each carried result is the argument of the
	// next iteration.
	var states []int
	for i, crossing := range c.p.Out {
		if _, ok := crossing.(region.Carry); ok {
			states = append(states, i)
		}
	}
	given := make([]*ir.Value, len(c.p.Out))
	at := make([]int, len(c.p.Out))
	for i, crossing := range c.p.In {
		v, outside := c.inside[i], c.outside[i]
		switch crossing.(type) {
		case region.Same:
			c.body = append(c.body, unchanged(v, outside))
		case region.Slice:
			if read[v] {
				c.slice(v, outside)
			}
		case region.Carry:
			result := states[0]
			states = states[1:]
			next := gives[result]
			if next == nil {
				next = v // unused
			}
			at[result] = len(c.start)
			c.start, c.argument, c.next = append(c.start, outside), append(c.argument, v), append(c.next, next)
		}
	}
	for i, crossing := range c.p.Out {
		v := gives[i]
		if v == nil {
			continue
		}
		switch crossing.(type) {
		case region.Same:
			at[i] = len(c.start)
			sum, next := c.carry(v.Type), c.a.f.Like(v)
			c.p.add(short("stablehlo.add", next, sum, v))
			c.next = append(c.next, next)
		case region.Slice:
			at[i] = len(c.start)
			c.stack(v)
		}
	}
	c.start, c.next, c.argument = append(c.start, kept...), append(c.next, keptNext...), append(c.argument, keptArguments...)
	types := make([]ir.Type, len(c.start))
	before := make([]*ir.Value, len(c.start))
	for i, v := range c.start {
		types[i], before[i] = v.Type, c.a.f.Fresh(v.Type)
	}
	_, _, rest := c.p.arguments()
	body := slices.Concat(c.body, rest, []*ir.Statement{give("stablehlo.return", c.next)})
	limit, again := c.a.f.Fresh(int32s), c.a.f.Fresh(boolean)
	more := &ir.Region{Label: "more", Arguments: before, Body: []*ir.Statement{
		constant(limit, ir.Integer(c.n)), compare("LT", again, before[0], limit), give("stablehlo.return", []*ir.Value{again})}}
	pack := c.a.f.Fresh(ir.Type{}).Name
	c.loop = &ir.Statement{Op: "stablehlo.while", Operands: c.start, Pack: pack, Results: ir.Pack(pack, types...),
		Regions: []*ir.Region{more, {Label: "run", Arguments: c.argument, Body: body}}, Form: ir.Inline}
	c.p.set(append(slices.Clone(c.prepare), c.loop))
	for i := range given {
		if gives[i] != nil {
			given[i] = c.loop.Results[at[i]]
		}
	}
	c.a.results(c.p, given)
}

// rename renames values of the loop.
func (c *cycle) rename(known map[*ir.Value]*ir.Value) {
	all := c.p.statements()
	for i, s := range all {
		all[i] = s.Reading(func(v *ir.Value) *ir.Value { return cmp.Or(known[v], v) })
	}
	c.p.set(all)
}
