package spmd

import (
	"slices"
	"strconv"
	"strings"

	"github.com/tpustrategy/tpustrategy/internal/region"
	"github.com/tpustrategy/tpustrategy/lowering/ir"
	"github.com/tpustrategy/tpustrategy/sharding"
)

func (c *manualComputation) writeComputation() {
	inside, outside, rest := c.pass.arguments()
	for i, v := range inside {
		if v == nil {
			continue
		}
		spec, unsplit := c.mappingSpec(v.Type.Rank(), c.pass.In[i]), c.unsplitAxes(c.pass.In[i])
		if c.pass.Forward == nil || len(unsplit) == 0 {
			c.addOperand(outside[i], v, spec)
			continue
		}
		undivided := c.outliner.function.NewValue(v.Type)
		c.addOperand(outside[i], undivided, spec)
		c.prologue = append(c.prologue, c.applyDeviceCount("stablehlo.divide", v, undivided, unsplit)...)
	}
	rest, _ = ir.Rewrite(rest, c.expandPlaceholder)
	c.setStatements(rest)
	body := make([]*ir.Statement, len(rest))
	for i, s := range rest {
		body[i] = s.ReplaceOperands(c.innerValue)
	}
	results, outer := c.outliner.innerResults(c.pass), c.outliner.outerResults(c.pass)
	resultIndex := make([]int, len(c.pass.Out))
	for i, v := range results {
		if v != nil {
			resultIndex[i] = len(c.returned)
			c.addResult(c.sumGradient(v, c.pass.Out[i]), c.mappingSpec(v.Type.Rank(), c.pass.Out[i]), nil)
			c.resultTypes[resultIndex[i]] = outer[i].Type
		}
	}
	c.replacePass("manual_", body, resultIndex, results)
}

// setStatements replaces the statements of the pass after the prologue, and records that the pass
// defines the operands of the manual computation.
func (c *manualComputation) setStatements(rest []*ir.Statement) {
	c.pass.setStatements(slices.Concat(c.prologue, rest))
	c.pass.defined = nil
	c.pass.defines(nil)
	for _, v := range c.arguments {
		c.pass.defined[v] = true
	}
}

// replacePass replaces the statements of the pass by one manual computation with the given body.
// results contains the results of the pass inside the computation, and resultIndex their indices in
// the results of the computation.
func (c *manualComputation) replacePass(name string, body []*ir.Statement, resultIndex []int, results []*ir.Value) {
	pack := name + c.outliner.function.NewValue(ir.Type{}).Name
	computation := manualComputationOp(pack, c.manualAxes(), c.operands, c.inSpecs, c.resultTypes, c.outSpecs,
		&ir.Region{Arguments: c.arguments, Body: slices.Concat(c.prologue, body, c.epilogue,
			[]*ir.Statement{returnOp("sdy.return", c.returned)})})
	all := append(slices.Clone(c.outerStatements), computation)
	for i, v := range c.outerResults {
		if v != nil {
			all = append(all, copyOp(v, computation.Results[i]))
		}
	}
	c.pass.setStatements(all)
	outer := make([]*ir.Value, len(c.pass.Out))
	for i, v := range results {
		if v != nil {
			outer[i] = computation.Results[resultIndex[i]]
		}
	}
	c.outliner.replaceResults(c.pass, outer)
}

// outerResults returns the results of a pass, as values outside the pass. An unused result is nil.
func (a *outliner) outerResults(p *passNode) []*ir.Value {
	all := make([]*ir.Value, len(p.Out))
	a.walk(a.root, func(_ *passNode, s *ir.Statement) {
		if m, ok := s.Placeholder.(resultPlaceholder); ok && m.pass == p.Pass {
			all[m.index] = s.Results[0]
		}
	})
	return all
}

func (c *manualComputation) manualAxes() []string {
	return c.outliner.assembler.mesh.SortAxes(c.outliner.assembler.factors.FactorsOf(c.axes...))
}

// unsplitAxes returns the axes of the manual computation over which a tensor with the given mapping
// is replicated.
func (c *manualComputation) unsplitAxes(mapping region.Mapping) []string {
	split := shardAxes(mapping)
	return slices.DeleteFunc(slices.Clone(c.axes), func(name string) bool { return slices.Contains(split, name) })
}

// applyDeviceCount returns statements that multiply or divide the value in by the number of devices
// on axes. op is the StableHLO op.
func (c *manualComputation) applyDeviceCount(op string, out, in *ir.Value, axes []string) []*ir.Statement {
	n := c.outliner.assembler.trace.deviceCount(axes)
	if n == 1 {
		return []*ir.Statement{copyOp(out, in)}
	}
	number := c.outliner.function.NewValue(in.Type)
	value := ir.Integer(n)
	switch {
	case in.Type.DType.IsComplex():
		value = ir.Number{Text: "(" + strconv.Itoa(n) + ".0, 0.0)"}
	case in.Type.DType.IsFloat():
		value = ir.Float(strconv.Itoa(n)+".0", float64(n))
	}
	return []*ir.Statement{constantOp(number, value), customOp(op, out, in, number)}
}

// sumGradient returns the value of v inside the computation. In a backward pass, v is the gradient
// of an argument, and sumGradient sums v over the devices that have the same value of the argument.
func (c *manualComputation) sumGradient(v *ir.Value, mapping region.Mapping) *ir.Value {
	in := c.innerValue(v)
	axes := c.unsplitAxes(mapping)
	if c.pass.Forward == nil || len(axes) == 0 || v.Type.IsEmpty() {
		return in
	}
	var equal, differ []string
	set := c.varyingAxes(v)
	for _, name := range axes {
		if set&c.outliner.assembler.trace.axisSetOf(name) == 0 {
			equal = append(equal, name)
		} else {
			differ = append(differ, name)
		}
	}
	if len(equal) > 0 {
		out := c.outliner.function.NewValue(v.Type)
		c.epilogue = append(c.epilogue, c.applyDeviceCount("stablehlo.multiply", out, in, equal)...)
		in = out
	}
	if len(differ) > 0 {
		out := c.outliner.function.NewValue(v.Type)
		c.epilogue = append(c.epilogue, &ir.Statement{Operands: []*ir.Value{in}, Results: []*ir.Value{out},
			Placeholder: c.outliner.assembler.trace.newCollective(region.AllReduce{Axes: differ})})
		in = out
	}
	return in
}

// varyingAxes returns the axes over which a value may vary. For an unknown value, such as a
// recomputed one, it returns all axes.
func (c *manualComputation) varyingAxes(v *ir.Value) axisSet {
	if set, known := c.outliner.variation.axes[v]; known {
		return set
	}
	return ^axisSet(0)
}

// expandPlaceholder lowers two kinds of placeholders: device indices, and all-reduces of values
// that are known to be equal on all devices. It returns other statements unchanged. The error is
// always nil.
func (c *manualComputation) expandPlaceholder(s *ir.Statement) ([]*ir.Statement, error) {
	switch m := s.Placeholder.(type) {
	case deviceIndexPlaceholder:
		if len(m.axes) > 0 {
			s = copyOp(s.Results[0], c.deviceIndex(m.axes))
		}
	case collectivePlaceholder:
		reduced, ok := m.op.(region.AllReduce)
		in := s.Operands[0]
		switch {
		case !ok || slices.Contains(m.axes, ReplicaAxis): // the varying inputs over the replicas are unknown here
		case c.varyingAxes(in)&c.outliner.assembler.trace.axisSetOf(m.axes...) != 0:
		case reduced.Reduction == region.Sum:
			return c.applyDeviceCount("stablehlo.multiply", s.Results[0], in, m.axes), nil
		case reduced.Reduction == region.Max, reduced.Reduction == region.Min, reduced.Reduction == region.Broadcast:
			s = copyOp(s.Results[0], in)
		}
	}
	return []*ir.Statement{s}, nil
}

// deviceIndex returns the index of the device on axes. The index is the device's element of an iota
// that is split over the axes.
func (c *manualComputation) deviceIndex(axes []string) *ir.Value {
	key := strings.Join(axes, "$")
	if c.deviceIndices[key] == nil {
		n := c.outliner.assembler.trace.deviceCount(axes)
		iota, element, number := c.outliner.function.NewValue(int32Scalar.Stacked(n)),
			c.outliner.function.NewValue(int32Scalar.Stacked(1)), c.outliner.function.NewValue(int32Scalar)
		c.outerStatements = append(c.outerStatements, iotaOp(iota))
		c.addOperand(iota, element, sharding.NewSpec(sharding.Dim{Axes: c.outliner.assembler.factors.FactorsOf(axes...)}))
		c.prologue = append(c.prologue, copyOp(number, element))
		c.deviceIndices[key] = number
	}
	return c.deviceIndices[key]
}
