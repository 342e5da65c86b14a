package spmd

import (
	"fmt"
	"slices"

	"github.com/gomlx/compute/dtypes"

	"github.com/tpustrategy/tpustrategy/lowering/ir"
	"github.com/tpustrategy/tpustrategy/sharding"
)

// region replaces region n of the step by a call and moves its body into a function.
func (w *writer) region(fl *flow, n int, r deviceRegion, b border) error {
	statements := make([]*ir.Statement, len(r.statements))
	for k, i := range r.statements {
		statements[k] = fl.statements[i]
	}
	if err := w.runsAlone(statements); err != nil {
		return err
	}
	results := append(slices.Clone(b.out), b.keep...)
	if len(results) == 0 {
		return nil // no result is read
	}
	var in, args []*ir.Value
	var inSpecs, outSpecs []sharding.Spec
	for i, v := range append(slices.Clone(b.in), b.kept...) {
		local, spec := v.Type, sharding.Replicated(v.Type.Rank())
		if i >= len(b.in) {
			local, spec = v.Type.Stacked(1), w.stacked(v.Type.Rank()+1)
			v = w.kept(v)
		}
		in, inSpecs = append(in, v), append(inSpecs, spec)
		args = append(args, named(fmt.Sprintf("region_%d_arg%d", n, i), local))
	}
	var outTypes, globalTypes []ir.Type // types in the function, and of the computation
	for i, v := range results {
		if i < len(b.out) {
			outTypes, globalTypes = append(outTypes, v.Type), append(globalTypes, v.Type)
			outSpecs = append(outSpecs, sharding.Replicated(v.Type.Rank()))
		} else {
			outTypes, globalTypes = append(outTypes, v.Type.Stacked(1)), append(globalTypes, v.Type.Stacked(w.logicalDevices))
			outSpecs = append(outSpecs, w.stacked(v.Type.Rank()+1))
		}
	}
	function := fmt.Sprintf("region_%d", n)
	called := call(function+"_out", function, outTypes, args)
	run := manual(function, w.factors.Names(), in, inSpecs, globalTypes, outSpecs,
		&ir.Region{Arguments: args, Body: []*ir.Statement{called, give("sdy.return", called.Results)}})
	w.body = append(w.body, run)
	for i, v := range results {
		// This only renames a result. Regions that read a kept value have the whole stack as an
		// operand, of which each device has its own slot.
		if i >= len(b.out) {
			v = w.kept(v)
		}
		w.body = append(w.body, unchanged(v, run.Results[i]))
	}
	return w.regionFunction(function, r.device, statements, b, results, outTypes)
}

// kept returns the stack over the logical devices of a value that stays on its device.
func (w *writer) kept(v *ir.Value) *ir.Value {
	return named("kept_"+v.Name, v.Type.Stacked(w.logicalDevices))
}

// runsAlone returns an error for calls of functions that all logical devices must run.
func (w *writer) runsAlone(statements []*ir.Statement) error {
	for _, s := range statements {
		if f := w.callee(s); f != nil && w.together(f.Body) {
			return misplaced(w.logicalDevices, fmt.Sprintf("the region calls function %q, which holds an annotation or a collective", f.Name), "call it before or after the On region")
		}
		for _, r := range s.Regions {
			if err := w.runsAlone(r.Body); err != nil {
				return err
			}
		}
	}
	return nil
}

// callee returns the function that a statement calls, or nil.
func (w *writer) callee(s *ir.Statement) *ir.Function {
	if name, ok := s.Attribute(ir.Callee).(ir.Symbol); ok {
		return w.called[string(name)]
	}
	return nil
}

// together reports whether statements, or functions that they call, contain a mark.
func (w *writer) together(statements []*ir.Statement) bool {
	return slices.ContainsFunc(statements, func(s *ir.Statement) bool {
		if s.Mark != nil || s.Op == "sdy.manual_computation" {
			return true
		}
		called := w.callee(s)
		return called != nil && w.together(called.Body) ||
			slices.ContainsFunc(s.Regions, func(r *ir.Region) bool { return w.together(r.Body) })
	})
}

// regionFunction writes a region's function. Its statements run only on the partitions of the
// region's device.
func (w *writer) regionFunction(name string, device int, statements []*ir.Statement, b border, results []*ir.Value, outTypes []ir.Type) error {
	f := &ir.Function{Name: name, Private: true, Form: ir.Short}
	add := func(s *ir.Statement) *ir.Value {
		f.Body = append(f.Body, s)
		return s.Results[0]
	}
	for _, v := range b.in {
		f.Parameters = append(f.Parameters, ir.Parameter{Value: v})
	}
	for _, v := range b.kept {
		slot := named(w.kept(v).Name, v.Type.Stacked(1))
		f.Parameters = append(f.Parameters, ir.Parameter{Value: slot})
		add(unchanged(v, slot))
	}
	for _, t := range outTypes {
		f.Results = append(f.Results, ir.Result{Type: t})
	}
	for _, v := range b.constants {
		again, err := w.repeat(v)
		if err != nil {
			return err
		}
		f.Body = append(f.Body, again...)
	}
	number := func(name string) *ir.Value { return named("region_"+name, ir.Tensor(dtypes.Uint32)) }
	partition := add(short("stablehlo.partition_id", number("partition")))
	devices := add(constant(number("devices"), ir.Integer(w.logicalDevices)))
	this := add(short("stablehlo.remainder", number("device"), partition, devices))
	this = add(short("stablehlo.convert", named("region_this", int32s), this))
	assigned := add(constant(named("region_assigned", int32s), ir.Integer(device)))
	from := add(short("stablehlo.subtract", named("region_from", int32s), this, assigned))
	run, err := w.replaced(statements...)
	if err != nil {
		return err
	}
	skipped := make([]*ir.Value, len(results))
	for i, v := range results {
		skipped[i] = named(fmt.Sprintf("skipped_%d", i), v.Type)
	}
	branches := where0(from, "region_out", run, results, skipped)
	f.Body = append(f.Body, branches)
	slots := make([]*ir.Value, len(results))
	for i, made := range branches.Results {
		slots[i] = named(fmt.Sprintf("slot_%d", i), outTypes[i])
		if i < len(b.out) {
			f.Body = append(f.Body, w.send(slots[i], made)...)
		} else {
			add(unchanged(slots[i], made))
		}
	}
	f.Body = append(f.Body, give("return", slots))
	w.functions = append(w.functions, f)
	return nil
}
