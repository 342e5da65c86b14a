package spmd

import (
	"fmt"
	"slices"

	"github.com/gomlx/compute/dtypes"

	"github.com/tpustrategy/tpustrategy/lowering/ir"
	"github.com/tpustrategy/tpustrategy/sharding"
)

// writeRegion moves the statements of region n, which run on one logical device, into a function,
// and adds a call of the function to the step.
func (w *assembler) writeRegion(flow *dataFlow, n int, region deviceRegion, boundary regionBoundary) error {
	statements := make([]*ir.Statement, len(region.statements))
	for k, i := range region.statements {
		statements[k] = flow.statements[i]
	}
	if err := w.checkSingleDevice(statements); err != nil {
		return err
	}
	results := append(slices.Clone(boundary.results), boundary.keptResults...)
	if len(results) == 0 {
		return nil // no result is read
	}
	var in, args []*ir.Value
	var inSpecs, outSpecs []sharding.Spec
	for i, v := range append(slices.Clone(boundary.operands), boundary.keptOperands...) {
		local, spec := v.Type, sharding.Replicated(v.Type.Rank())
		if i >= len(boundary.operands) {
			local, spec = v.Type.Stacked(1), w.stackedSpec(v.Type.Rank()+1)
			v = w.keptStack(v)
		}
		in, inSpecs = append(in, v), append(inSpecs, spec)
		args = append(args, newValue(fmt.Sprintf("region_%d_arg%d", n, i), local))
	}
	var outTypes, globalTypes []ir.Type // types in the function, and of the computation
	for i, v := range results {
		if i < len(boundary.results) {
			outTypes, globalTypes = append(outTypes, v.Type), append(globalTypes, v.Type)
			outSpecs = append(outSpecs, sharding.Replicated(v.Type.Rank()))
		} else {
			outTypes, globalTypes = append(outTypes, v.Type.Stacked(1)),
				append(globalTypes, v.Type.Stacked(w.logicalDevices))
			outSpecs = append(outSpecs, w.stackedSpec(v.Type.Rank()+1))
		}
	}
	function := fmt.Sprintf("region_%d", n)
	called := callOp(function+"_out", function, outTypes, args)
	run := manualComputationOp(function, w.factors.Names(), in, inSpecs, globalTypes, outSpecs,
		&ir.Region{Arguments: args, Body: []*ir.Statement{called, returnOp("sdy.return", called.Results)}})
	w.body = append(w.body, run)
	for i, v := range results {
		// This only renames a result. Regions that read a kept value have the complete stack as an
		// operand, of which each device receives one slice.
		if i >= len(boundary.results) {
			v = w.keptStack(v)
		}
		w.body = append(w.body, copyOp(v, run.Results[i]))
	}
	return w.writeRegionFunction(function, region.device, statements, boundary, results, outTypes)
}

// keptStack returns a new value for the stack, over the logical devices, of the values of v. Each
// device keeps its own slice.
func (w *assembler) keptStack(v *ir.Value) *ir.Value {
	return newValue("kept_"+v.Name, v.Type.Stacked(w.logicalDevices))
}

// checkSingleDevice returns an error if a statement calls a function that all logical devices must
// run.
func (w *assembler) checkSingleDevice(statements []*ir.Statement) error {
	for _, s := range statements {
		if f := w.calledFunction(s); f != nil && w.containsPlaceholder(f.Body) {
			return regionError(w.logicalDevices,
				fmt.Sprintf("the region calls function %q, which contains an annotation or a collective",
					f.Name), "call it before or after the OnDevice region")
		}
		for _, r := range s.Regions {
			if err := w.checkSingleDevice(r.Body); err != nil {
				return err
			}
		}
	}
	return nil
}

func (w *assembler) calledFunction(s *ir.Statement) *ir.Function {
	if name, ok := s.Attribute(ir.CalleeKey).(ir.Symbol); ok {
		return w.callees[string(name)]
	}
	return nil
}

// containsPlaceholder reports whether statements, or the functions that they call, contain a
// placeholder or a manual computation.
func (w *assembler) containsPlaceholder(statements []*ir.Statement) bool {
	return slices.ContainsFunc(statements, func(s *ir.Statement) bool {
		if s.Placeholder != nil || s.Op == "sdy.manual_computation" {
			return true
		}
		called := w.calledFunction(s)
		return called != nil && w.containsPlaceholder(called.Body) ||
			slices.ContainsFunc(s.Regions, func(r *ir.Region) bool { return w.containsPlaceholder(r.Body) })
	})
}

// writeRegionFunction writes the function of a region. In the function, only the partitions of the
// region's device run the statements.
func (w *assembler) writeRegionFunction(name string, device int, statements []*ir.Statement, boundary regionBoundary,
	results []*ir.Value, outTypes []ir.Type) error {
	f := &ir.Function{Name: name, Private: true, Form: ir.Custom}
	add := func(s *ir.Statement) *ir.Value {
		f.Body = append(f.Body, s)
		return s.Results[0]
	}
	for _, v := range boundary.operands {
		f.Parameters = append(f.Parameters, ir.Parameter{Value: v})
	}
	for _, v := range boundary.keptOperands {
		slot := newValue(w.keptStack(v).Name, v.Type.Stacked(1))
		f.Parameters = append(f.Parameters, ir.Parameter{Value: slot})
		add(copyOp(v, slot))
	}
	for _, t := range outTypes {
		f.Results = append(f.Results, ir.Result{Type: t})
	}
	for _, v := range boundary.constants {
		again, err := w.repeatConstant(v)
		if err != nil {
			return err
		}
		f.Body = append(f.Body, again...)
	}
	number := func(name string) *ir.Value { return newValue("region_"+name, ir.TensorType(dtypes.Uint32)) }
	partition := add(customOp("stablehlo.partition_id", number("partition")))
	devices := add(constantOp(number("devices"), ir.Integer(w.logicalDevices)))
	thisDevice := add(customOp("stablehlo.remainder", number("device"), partition, devices))
	thisDevice = add(customOp("stablehlo.convert", newValue("region_this", int32Scalar), thisDevice))
	assigned := add(constantOp(newValue("region_assigned", int32Scalar), ir.Integer(device)))
	from := add(customOp("stablehlo.subtract", newValue("region_from", int32Scalar), thisDevice, assigned))
	run, err := w.resolvePlaceholders(statements...)
	if err != nil {
		return err
	}
	skipped := make([]*ir.Value, len(results))
	for i, v := range results {
		skipped[i] = newValue(fmt.Sprintf("skipped_%d", i), v.Type)
	}
	branches := caseZeroOp(from, "region_out", run, results, skipped)
	f.Body = append(f.Body, branches)
	slots := make([]*ir.Value, len(results))
	for i, made := range branches.Results {
		slots[i] = newValue(fmt.Sprintf("slot_%d", i), outTypes[i])
		if i < len(boundary.results) {
			sent, err := w.broadcastFromDevice(slots[i], made)
			if err != nil {
				return err
			}
			f.Body = append(f.Body, sent...)
		} else {
			add(copyOp(slots[i], made))
		}
	}
	f.Body = append(f.Body, returnOp("return", slots))
	w.functions = append(w.functions, f)
	return nil
}
