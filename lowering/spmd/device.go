package spmd

import (
	"fmt"
	"slices"

	"github.com/tpustrategy/tpustrategy/internal/region"
	"github.com/tpustrategy/tpustrategy/lowering/ir"
)

// A region of one logical device can be nested, for example in a loop body. It then becomes a
// computation that is manual over all logical axes, with a branch that only this device takes. The
// other devices use zeros, and the results are broadcast to all devices. Values for backward passes
// stay on the device, as slices of tensors that are stacked over the devices. See region.go for
// regions that are not nested.

// checkDeviceRegion returns an error if a region of one logical device cannot begin at the current
// point of the trace.
func (t *Trace) checkDeviceRegion(kind region.Kind) error {
	if _, ok := kind.(region.On); !ok {
		return nil
	}
	if t.InRegion() {
		return regionError(t.opts.LogicalDevices, "inside another region", "close the first region before the second")
	}
	for _, p := range t.OpenPasses() {
		if _, manual := p.Kind.(region.Manual); manual {
			return regionError(t.opts.LogicalDevices,
				fmt.Sprintf("inside a region (%s) in which each device runs on its shards", p.Kind),
				"put it before or after that region")
		}
	}
	return nil
}

func (a *outliner) writeDeviceRegion(forward *passNode) error {
	t := a.assembler.trace
	axes := t.nontrivialAxes(t.mesh.AxisNames())
	if a.assembler.isSinglePartition() || len(axes) == 0 {
		a.inlinePasses(forward)
		return nil
	}
	k, all, stacks, err := a.newComputations(forward, axes)
	if err != nil {
		return err
	}
	for n, c := range all {
		if n > 0 {
			k.kept = nil // the forward pass already returned them
		}
		if err := c.writeDeviceComputation(forward.Kind.(region.On).Device, k.kept, stacks); err != nil {
			return err
		}
	}
	return nil
}

// writeDeviceComputation replaces the pass by a computation that only one device runs. kept
// contains the values that stay on the device until a backward pass reads them.
func (c *manualComputation) writeDeviceComputation(device int, kept []*ir.Value, stacks map[*ir.Value]*ir.Value) error {
	inside, outside, rest := c.pass.arguments()
	if err := c.outliner.assembler.checkSingleDevice(rest); err != nil {
		return err
	}
	for i, v := range inside {
		switch {
		case v == nil:
		case v.Type.IsEmpty():
			c.prologue = append(c.prologue, emptyConstantOp(v))
		default:
			c.addOperand(outside[i], v, c.shardingSpec(v.Type.Rank(), nil))
		}
	}
	assigned, offset := c.outliner.function.NewValue(int32Scalar), c.outliner.function.NewValue(int32Scalar)
	this := c.deviceIndex(c.axes)
	c.prologue = append(c.prologue, constantOp(assigned, ir.Integer(device)),
		customOp("stablehlo.subtract", offset, this, assigned))
	c.setStatements(rest)
	run := make([]*ir.Statement, len(rest))
	for i, s := range rest {
		run[i] = s.ReplaceOperands(c.innerValue)
	}
	var results, zeros []*ir.Value
	var send []func(out *ir.Value)
	branch := func(v *ir.Value, after func(made *ir.Value)) {
		results, zeros, send = append(results, c.innerValue(v)), append(zeros, c.outliner.function.NewValue(v.Type)),
			append(send, after)
	}
	// Escaped values are already in c.returned. They are sent like results.
	escaped := slices.Clone(c.returned)
	addSent := func(v *ir.Value, at int) {
		out := c.outliner.function.NewValue(v.Type)
		c.returned[at] = out
		if v.Type.IsEmpty() {
			c.epilogue = append(c.epilogue, emptyConstantOp(out))
			return
		}
		branch(v, func(made *ir.Value) { c.epilogue = append(c.epilogue, c.broadcastResult(out, made)) })
	}
	for i, v := range escaped {
		addSent(v, i)
	}
	innerResults, leaving := c.outliner.innerResults(c.pass), c.outliner.outerResults(c.pass)
	at := make([]int, len(innerResults))
	for i, v := range innerResults {
		if v != nil {
			at[i] = len(c.returned)
			c.addResult(v, c.shardingSpec(v.Type.Rank(), nil), nil)
			c.resultTypes[at[i]] = leaving[i].Type
			addSent(v, at[i])
		}
	}
	for _, v := range kept {
		if v.Type.IsEmpty() {
			continue
		}
		slot := c.outliner.function.NewValue(v.Type.Stacked(1))
		c.addResult(slot, c.stackSpec(slot.Type.Rank()), stacks[v])
		branch(v, func(made *ir.Value) { c.epilogue = append(c.epilogue, copyOp(slot, made)) })
	}
	var body []*ir.Statement
	if len(results) > 0 {
		branches := caseZeroOp(offset, c.outliner.function.NewValue(ir.Type{}).Name, run, results, zeros)
		for i, made := range branches.Results {
			send[i](made)
		}
		body = append(body, branches)
	}
	c.replacePass("on_", body, at, innerResults)
	return nil
}

// broadcastResult returns a collective that sends the value in to all devices. The device that
// computed it passes the value, and all other devices pass zeros.
func (c *manualComputation) broadcastResult(out, in *ir.Value) *ir.Statement {
	return &ir.Statement{Operands: []*ir.Value{in}, Results: []*ir.Value{out},
		Placeholder: c.outliner.assembler.trace.newCollective(region.AllReduce{Axes: c.axes, Reduction: Broadcast})}
}
