package spmd

import (
	"cmp"
	"slices"

	"github.com/tpustrategy/tpustrategy/internal/region"
	"github.com/tpustrategy/tpustrategy/lowering/ir"
)

// writeLoop lowers a loop. The forward pass and each backward pass become one stablehlo.while op
// each.
func (a *outliner) writeLoop(forward *passNode) {
	kind := forward.Kind.(region.Loop)
	k := newRematerializer(a.function, forward, kind.Policy)
	backward := make([]*whileLoop, len(forward.backward))
	for n, p := range forward.backward {
		backward[n] = a.newWhileLoop(p, kind.N, true)
		backward[n].replaceForwardValues(k)
	}
	c := a.newWhileLoop(forward, kind.N, false)
	for _, v := range k.kept {
		if k.isOffloaded(v) {
			there := a.function.NewValueLike(v)
			c.pass.appendStatements(placeInMemory(pinnedHostSpace, there, v))
			v = there
		}
		c.addStack(v)
	}
	c.writeWhile()
	stacks := c.statement.Results[len(c.statement.Results)-len(k.kept):]
	for n, b := range backward {
		b.writeWhile()
		// The stacks are results of the forward loop now.
		known := map[*ir.Value]*ir.Value{}
		for i, v := range k.kept {
			known[backward[n].stacks[v]] = stacks[i]
		}
		b.replaceValues(known)
	}
}

type whileLoop struct {
	outliner   *outliner
	pass       *passNode
	iterations int
	reverse    bool

	index                                   *ir.Value
	body                                    []*ir.Statement
	initial, arguments, next                []*ir.Value // carried values: initial, in an iteration, and updated
	outerStatements                         []*ir.Statement
	zero                                    *ir.Value
	innerArguments, outerArguments, results []*ir.Value
	statement                               *ir.Statement

	stacks map[*ir.Value]*ir.Value // stacks of kept values, by their names in this pass
}

func (a *outliner) newWhileLoop(p *passNode, iterations int, reverse bool) *whileLoop {
	c := &whileLoop{outliner: a, pass: p, iterations: iterations, reverse: reverse, stacks: map[*ir.Value]*ir.Value{}}
	c.innerArguments, c.outerArguments, _ = p.arguments()
	count := a.function.NewValue(int32Scalar)
	c.zero = a.function.NewValue(int32Scalar)
	c.initial, c.arguments = []*ir.Value{a.function.NewValue(int32Scalar)}, []*ir.Value{count}
	c.outerStatements = append(c.outerStatements, constantOp(c.initial[0], ir.Integer(0)))
	c.body = append(c.body, constantOp(c.zero, ir.Integer(0)))
	c.index = count
	if reverse {
		last := a.function.NewValue(int32Scalar)
		c.index = a.function.NewValue(int32Scalar)
		c.body = append(c.body, constantOp(last, ir.Integer(iterations-1)),
			customOp("stablehlo.subtract", c.index, last, count))
	}
	one, next := a.function.NewValue(int32Scalar), a.function.NewValue(int32Scalar)
	c.body = append(c.body, constantOp(one, ir.Integer(1)), customOp("stablehlo.add", next, count, one))
	c.next = []*ir.Value{next}
	return c
}

// readStack adds ops that read the slice of the current iteration from a stacked tensor. The result
// is out.
func (c *whileLoop) readStack(out, stack *ir.Value) {
	sizes := append([]int{1}, stack.Type.Dims[1:]...)
	element := c.outliner.function.NewValue(stack.Type.WithDims(sizes...))
	element.Origin = out.Origin
	c.body = append(c.body, genericOp("stablehlo.dynamic_slice", element,
		c.startIndices(stack)...).AddAttribute("slice_sizes", ir.Ints(sizes)), copyOp(out, element))
}

// startIndices returns operands, followed by the indices at which the slice of the current
// iteration starts in a stacked tensor.
func (c *whileLoop) startIndices(operands ...*ir.Value) []*ir.Value {
	return slices.Concat(operands, []*ir.Value{c.index}, slices.Repeat([]*ir.Value{c.zero}, operands[0].Type.Rank()-1))
}

// addZeroState adds a variable to the loop's state, with zeros as its initial value. It returns the
// variable's value inside an iteration.
func (c *whileLoop) addZeroState(t ir.Type) *ir.Value {
	start, argument := c.outliner.function.NewValue(t), c.outliner.function.NewValue(t)
	c.outerStatements = append(c.outerStatements, constantOp(start, ir.Zero(t.DType)))
	c.initial, c.arguments = append(c.initial, start), append(c.arguments, argument)
	return argument
}

// addStack adds a loop result that stacks the values of v in all iterations.
func (c *whileLoop) addStack(v *ir.Value) {
	all := c.addZeroState(v.Type.Stacked(c.iterations))
	element, next := c.outliner.function.NewValue(v.Type.Stacked(1)), c.outliner.function.NewValue(all.Type)
	element.Origin, next.Origin = v.Origin, v.Origin
	c.results = append(c.results, nil)
	c.pass.appendStatements(copyOp(element, v),
		genericOp("stablehlo.dynamic_update_slice", next, c.startIndices(all, element)...))
	c.next = append(c.next, next)
}

func (c *whileLoop) replaceForwardValues(k *rematerializer) {
	r := &recomputation{rematerializer: k, replacements: map[*ir.Value]*ir.Value{}}
	r.load = func(v *ir.Value) *ir.Value {
		out := c.outliner.function.NewValueLike(v)
		stack, kept := c.stacks[v], true
		if i, ok := k.argumentIndex[v]; ok {
			switch k.forward.In[i].(type) {
			case region.Identity:
				return k.outerArguments[i]
			case region.Slice:
				stack, kept = k.outerArguments[i], false
			}
		}
		if stack == nil {
			stack = c.outliner.function.NewValue(v.Type.Stacked(c.iterations))
			c.stacks[v] = stack
		}
		before := c.body
		c.body = nil
		c.readStack(out, stack)
		r.body = append(r.body, c.body...)
		c.body = before
		if kept && k.isOffloaded(v) {
			here := c.outliner.function.NewValueLike(v)
			r.body = append(r.body, placeInMemory(deviceMemorySpace, here, out))
			return here
		}
		return out
	}
	r.rewriteBackward(c.outliner, c.pass)
}

func (c *whileLoop) writeWhile() {
	innerResults := c.outliner.innerResults(c.pass)
	read := c.pass.readValues(innerResults)
	kept, keptNext := c.initial[1:], c.next[1:]
	keptArguments := c.arguments[1:]
	c.initial, c.next, c.arguments = c.initial[:1:1], c.next[:1:1], c.arguments[:1:1]
	// The states come first: package region ensures that each carried result is the argument of the
	// next iteration.
	var states []int
	for i, crossing := range c.pass.Out {
		if _, ok := crossing.(region.Carry); ok {
			states = append(states, i)
		}
	}
	given := make([]*ir.Value, len(c.pass.Out))
	resultIndex := make([]int, len(c.pass.Out))
	for i, crossing := range c.pass.In {
		v, outside := c.innerArguments[i], c.outerArguments[i]
		switch crossing.(type) {
		case region.Identity:
			c.body = append(c.body, copyOp(v, outside))
		case region.Slice:
			if read[v] {
				c.readStack(v, outside)
			}
		case region.Carry:
			result := states[0]
			states = states[1:]
			next := innerResults[result]
			if next == nil {
				next = v // unused
			}
			resultIndex[result] = len(c.initial)
			c.initial, c.arguments, c.next = append(c.initial, outside), append(c.arguments, v), append(c.next, next)
		}
	}
	for i, crossing := range c.pass.Out {
		v := innerResults[i]
		if v == nil {
			continue
		}
		switch crossing.(type) {
		case region.Identity:
			resultIndex[i] = len(c.initial)
			sum, next := c.addZeroState(v.Type), c.outliner.function.NewValueLike(v)
			c.pass.appendStatements(customOp("stablehlo.add", next, sum, v))
			c.next = append(c.next, next)
		case region.Slice:
			resultIndex[i] = len(c.initial)
			c.addStack(v)
		}
	}
	c.initial, c.next, c.arguments = append(c.initial, kept...), append(c.next, keptNext...),
		append(c.arguments, keptArguments...)
	types := make([]ir.Type, len(c.initial))
	before := make([]*ir.Value, len(c.initial))
	for i, v := range c.initial {
		types[i], before[i] = v.Type, c.outliner.function.NewValue(v.Type)
	}
	_, _, rest := c.pass.arguments()
	body := slices.Concat(c.body, rest, []*ir.Statement{returnOp("stablehlo.return", c.next)})
	limit, again := c.outliner.function.NewValue(int32Scalar), c.outliner.function.NewValue(boolScalar)
	condition := &ir.Region{Label: "more", Arguments: before, Body: []*ir.Statement{
		constantOp(limit, ir.Integer(c.iterations)), compareOp("LT", again, before[0], limit),
		returnOp("stablehlo.return", []*ir.Value{again})}}
	pack := c.outliner.function.NewValue(ir.Type{}).Name
	c.statement = &ir.Statement{Op: "stablehlo.while", Operands: c.initial, ResultName: pack,
		Results: ir.NewResults(pack, types...),
		Regions: []*ir.Region{condition, {Label: "run", Arguments: c.arguments, Body: body}}, Form: ir.Generic}
	c.pass.setStatements(append(slices.Clone(c.outerStatements), c.statement))
	for i := range given {
		if innerResults[i] != nil {
			given[i] = c.statement.Results[resultIndex[i]]
		}
	}
	c.outliner.replaceResults(c.pass, given)
}

func (c *whileLoop) replaceValues(known map[*ir.Value]*ir.Value) {
	all := c.pass.statements()
	for i, s := range all {
		all[i] = s.ReplaceOperands(func(v *ir.Value) *ir.Value { return cmp.Or(known[v], v) })
	}
	c.pass.setStatements(all)
}
