package spmd

import (
	"fmt"
	"slices"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/internal/region"
	"github.com/tpustrategy/tpustrategy/lowering/ir"
	"github.com/tpustrategy/tpustrategy/sharding"
)

// The forward pass and the backward passes of a manual region become computations that are manual
// over the region's axes. Values from outside are operands. Values that the backward passes read
// are results: tensors that are stacked over the devices, one slice per device.
//
// The gradients are those of the sum of all devices' results. A result that is equal on n devices
// counts once, so its adjoint is divided by n on each device. The gradient of an argument that is
// equal on several devices is summed over them. The adjoints of collectives follow from these two
// rules. A sum of values that are known to be equal is written as a multiplication.

func (a *outliner) writeManual(forward *passNode) error {
	w := a.assembler
	axes := w.trace.nontrivialAxes(forward.Kind.(region.Manual).Axes)
	if w.isSinglePartition() || len(axes) == 0 {
		a.inlinePasses(forward)
		return nil
	}
	k, all, stacks, err := a.newComputations(forward, axes)
	if err != nil {
		return err
	}
	for _, v := range k.kept {
		if v.Type.IsEmpty() {
			continue
		}
		c := all[0]
		c.addResult(c.stackValue(v), c.stackSpec(v.Type.Rank()+1), stacks[v])
	}
	for _, c := range all {
		c.writeComputation()
	}
	return nil
}

// newComputations creates manual computations over axes for the passes of a region. all contains
// the computation of the forward pass, followed by the computations of the backward passes. stacks
// contains the values of the forward pass that a backward pass reads: it maps each value to a
// tensor outside the region that stacks the values of all devices.
func (a *outliner) newComputations(forward *passNode, axes []string) (k *rematerializer, all []*manualComputation,
	stacks map[*ir.Value]*ir.Value, err error) {
	k = newRematerializer(a.function, forward, region.RematPolicy{})
	for v := range k.definitions {
		k.dependence[v] = carriedState
	}
	stacks = map[*ir.Value]*ir.Value{}
	for _, p := range forward.backward {
		c := a.newComputation(p, axes)
		c.replaceForwardValues(k, stacks)
		all = append(all, c)
	}
	first := a.newComputation(forward, axes)
	return k, slices.Insert(all, 0, first), stacks, first.returnEscapedValues(forward.backward)
}

// inlinePasses inlines the forward and backward passes of a region into the step. It is for regions
// that run on a single device.
func (a *outliner) inlinePasses(forward *passNode) {
	for _, p := range forward.backward {
		a.inlinePass(p)
	}
	a.inlinePass(forward)
}

// manualComputation represents a forward or backward pass that becomes an sdy.manual_computation.
type manualComputation struct {
	outliner *outliner
	pass     *passNode
	axes     []string // the axes with more than one device
	devices  int
	openDims bool // the partitioner may use other axes of the replica

	operands, arguments []*ir.Value // outside, and inside
	inSpecs, outSpecs   []sharding.Spec
	returned            []*ir.Value // inside
	resultTypes         []ir.Type   // of the results, outside
	outerResults        []*ir.Value // outside: the values of the results, without a resultPlaceholder
	prologue, epilogue  []*ir.Statement
	outerStatements     []*ir.Statement // outside
	innerValues         map[*ir.Value]*ir.Value
	deviceIndices       map[string]*ir.Value
}

func (a *outliner) newComputation(p *passNode, axes []string) *manualComputation {
	t := a.assembler.trace
	return &manualComputation{outliner: a, pass: p, axes: axes, devices: t.deviceCount(axes),
		innerValues: map[*ir.Value]*ir.Value{}, deviceIndices: map[string]*ir.Value{},
		openDims: len(t.nontrivialAxes(t.mesh.AxisNames())) > len(axes)}
}

// shardingSpec returns the sharding of a tensor with the given rank whose dimension i is split over
// axes[i]. Dimensions without an element in axes are not split.
func (c *manualComputation) shardingSpec(rank int, axes [][]string) sharding.Spec {
	dims := make([]sharding.Dim, rank)
	for i := range dims {
		dims[i].Open = c.openDims
		if i < len(axes) {
			dims[i].Axes = c.outliner.assembler.factors.FactorsOf(c.outliner.assembler.trace.nontrivialAxes(axes[i])...)
		}
	}
	spec := sharding.NewSpec(dims...)
	if c.openDims { // the partitioner may split further, but not over the manual axes
		used := spec.UsedAxes()
		whole := slices.DeleteFunc(c.manualAxes(), func(name string) bool { return slices.Contains(used, name) })
		spec = spec.WithReplicated(whole...)
	}
	return spec
}

func (c *manualComputation) mappingSpec(rank int, mapping region.Mapping) sharding.Spec {
	shard, _ := mapping.(region.Shard)
	names := make([][]string, len(shard.Axes))
	for i, axes := range shard.Axes {
		for _, axis := range axes {
			names[i] = append(names[i], axis.Name)
		}
	}
	return c.shardingSpec(rank, names)
}

func (c *manualComputation) stackSpec(rank int) sharding.Spec {
	return c.shardingSpec(rank, [][]string{c.axes})
}

// addOperand adds an operand to the manual computation. outer is its value outside the computation,
// and inner its value inside.
func (c *manualComputation) addOperand(outer, inner *ir.Value, spec sharding.Spec) {
	c.operands, c.arguments, c.inSpecs = append(c.operands, outer), append(c.arguments, inner), append(c.inSpecs, spec)
}

// addResult adds a result to the manual computation. v is its value inside the computation. outer
// is its value outside, or nil if a placeholder defines that value.
func (c *manualComputation) addResult(v *ir.Value, spec sharding.Spec, outer *ir.Value) {
	t := v.Type
	if outer != nil {
		t = outer.Type
	}
	c.returned, c.outSpecs, c.resultTypes, c.outerResults = append(c.returned, v), append(c.outSpecs, spec),
		append(c.resultTypes, t), append(c.outerResults, outer)
}

// stackValue adds a leading dimension of size 1 to v. The values of all devices then form a tensor
// that is stacked over the devices.
func (c *manualComputation) stackValue(v *ir.Value) *ir.Value {
	slot := c.outliner.function.NewValue(v.Type.Stacked(1))
	c.epilogue = append(c.epilogue, copyOp(slot, c.innerValue(v)))
	return slot
}

// innerValue returns the value that represents v inside the manual computation. If v is a constant,
// the computation computes it again. Any other value from outside becomes an operand, which is
// equal on all devices.
func (c *manualComputation) innerValue(v *ir.Value) *ir.Value {
	if in, ok := c.innerValues[v]; ok {
		return in
	}
	if c.pass.defines(v) {
		return v
	}
	in := c.outliner.function.NewValue(v.Type)
	if s := c.outliner.constants[v]; s != nil {
		copied := *s
		copied.Results = []*ir.Value{in}
		c.prologue = append(c.prologue, &copied)
	} else {
		c.addOperand(v, in, c.shardingSpec(v.Type.Rank(), nil))
	}
	c.innerValues[v] = in
	return in
}

// replaceForwardValues replaces the values of the forward pass that a backward pass reads by
// operands of the backward pass. An operand is an argument of the forward pass, or the device's
// slice of a stack of kept values.
func (c *manualComputation) replaceForwardValues(k *rematerializer, stacks map[*ir.Value]*ir.Value) {
	r := &recomputation{rematerializer: k, replacements: map[*ir.Value]*ir.Value{}}
	r.load = func(v *ir.Value) *ir.Value {
		out := c.outliner.function.NewValue(v.Type)
		if i, ok := k.argumentIndex[v]; ok {
			c.addOperand(k.outerArguments[i], out, c.mappingSpec(v.Type.Rank(), k.forward.In[i]))
			return out
		}
		if v.Type.IsEmpty() {
			r.body = append(r.body, emptyConstantOp(out))
			return out
		}
		if stacks[v] == nil {
			stacks[v] = c.outliner.function.NewValue(v.Type.Stacked(c.devices))
		}
		slot := c.outliner.function.NewValue(v.Type.Stacked(1))
		c.addOperand(stacks[v], slot, c.stackSpec(slot.Type.Rank()))
		r.body = append(r.body, copyOp(out, slot))
		return out
	}
	r.rewriteBackward(c.outliner, c.pass)
}

// defines reports whether v is defined in the pass, also as an argument or in a nested region.
func (p *passNode) defines(v *ir.Value) bool {
	if p.defined == nil {
		p.defined = map[*ir.Value]bool{}
		var own func(all []*ir.Statement)
		own = func(all []*ir.Statement) {
			for _, s := range all {
				for _, v := range s.Results {
					p.defined[v] = true
				}
				for _, r := range s.Regions {
					for _, v := range r.Arguments {
						p.defined[v] = true
					}
					own(r.Body)
				}
			}
		}
		own(p.statements())
	}
	return p.defined[v]
}

// returnEscapedValues adds results to the forward pass for the values that the step reads outside
// the region although the region does not return them, such as the state of a random generator. It
// returns an error if such a value may differ between devices.
func (c *manualComputation) returnEscapedValues(backward []*passNode) error {
	outside := map[*ir.Value]*ir.Value{}
	var differs *ir.Value
	for _, p := range backward {
		p.excluded = true
	}
	c.pass.excluded = true
	c.outliner.mapStatements(func(s *ir.Statement) *ir.Statement {
		if m, ok := s.Placeholder.(resultPlaceholder); ok && m.pass == c.pass.Pass {
			return s
		}
		return s.ReplaceOperands(func(v *ir.Value) *ir.Value {
			if !c.pass.defines(v) {
				return v
			}
			if outside[v] == nil {
				outside[v] = c.outliner.function.NewValue(v.Type)
				if c.outliner.variation.axes[v]&c.outliner.assembler.trace.axisSetOf(c.axes...) != 0 {
					differs = v
				}
				c.addResult(v, c.shardingSpec(v.Type.Rank(), nil), outside[v])
			}
			return outside[v]
		})
	})
	for _, p := range append(backward, c.pass) {
		p.excluded = false
	}
	if differs != nil {
		return &errkind.Fault{Op: "manual:", Subject: fmt.Sprintf("a value of type %s", differs.Type),
			Reason: "it is computed inside the region, differs between the devices, and is used outside",
			Hint:   "return it from the region, with a spec", Class: errkind.ValueError}
	}
	return nil
}
