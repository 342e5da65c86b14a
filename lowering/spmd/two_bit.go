package spmd

import (
	"fmt"
	"slices"

	"github.com/gomlx/compute/dtypes"

	"github.com/tpustrategy/tpustrategy/lowering/ir"
)

// Integers of 2 bits are written as integers of 8 bits whose values are in the 2-bit range. XLA's
// partitioner corrupts memory when it moves 2-bit integers between CPU devices, and libtpu rejects
// most of their shapes.

func isTwoBit(d dtypes.DType) bool { return d == dtypes.Int2 || d == dtypes.Uint2 }

// reductionOps lists ops that combine elements in a region. Compilers support only regions of one
// op, so the result of the reduction is wrapped to 2 bits, not the result of the region.
var reductionOps = []string{"stablehlo.reduce", "stablehlo.reduce_window", "stablehlo.scatter",
	"stablehlo.select_and_scatter"}

// rangePreservingOps lists ops whose results are in the range of their operands or of the results
// of their regions.
var rangePreservingOps = []string{
	"stablehlo.constant", "stablehlo.reshape", "stablehlo.broadcast_in_dim", "stablehlo.transpose", "stablehlo.slice",
	"stablehlo.dynamic_slice",
	"stablehlo.dynamic_update_slice", "stablehlo.concatenate", "stablehlo.pad", "stablehlo.reverse", "stablehlo.gather",
	"stablehlo.select", "stablehlo.maximum", "stablehlo.minimum", "stablehlo.clamp", "stablehlo.sort", "stablehlo.and",
	"stablehlo.or", "stablehlo.xor", "stablehlo.sign", "stablehlo.while", "stablehlo.case", "stablehlo.if",
	"stablehlo.optimization_barrier", "stablehlo.all_gather", "stablehlo.all_to_all", "stablehlo.collective_permute",
	"func.call", "sdy.manual_computation", "sdy.sharding_constraint",
}

// twoBitWidener replaces 2-bit integers by 8-bit integers in a function.
type twoBitWidener struct {
	wideValues  map[*ir.Value]*ir.Value
	inReduction bool // inside a reduction's region
}

// widenTwoBits returns a module's functions, the entry function first, without 2-bit integers. It
// keeps the argument and result types of the entry function.
func widenTwoBits(functions []*ir.Function) []*ir.Function {
	found := false
	var search func(list []*ir.Statement)
	search = func(list []*ir.Statement) {
		for _, s := range list {
			for _, v := range s.Results {
				found = found || isTwoBit(v.Type.DType)
			}
			for _, r := range s.Regions {
				search(r.Body)
			}
		}
	}
	for _, f := range functions {
		for _, p := range f.Parameters {
			found = found || isTwoBit(p.Type.DType)
		}
		search(f.Body)
	}
	if !found {
		return functions
	}
	all := make([]*ir.Function, len(functions))
	for i, f := range functions {
		all[i] = (&twoBitWidener{wideValues: map[*ir.Value]*ir.Value{}}).widenFunction(f, i == 0)
	}
	return all
}

func (w *twoBitWidener) widenFunction(f *ir.Function, entry bool) *ir.Function {
	written := *f
	written.Parameters, written.Results = slices.Clone(f.Parameters), slices.Clone(f.Results)
	var before []*ir.Statement
	for i, p := range f.Parameters {
		switch {
		case !isTwoBit(p.Type.DType):
		case entry:
			before = append(before, customOp("stablehlo.convert", w.newWideValue("wide_", p.Value), p.Value))
		default:
			written.Parameters[i].Value = w.widenValue(p.Value)
		}
	}
	written.Body = append(before, w.widenStatements(f.Body)...)
	for i, r := range f.Results {
		if isTwoBit(r.Type.DType) && !entry {
			written.Results[i].Type = ir.TensorType(byteDType(r.Type.DType), r.Type.Dims...)
		}
	}
	if last := f.Body[len(f.Body)-1]; entry && slices.ContainsFunc(last.Operands,
		func(v *ir.Value) bool { return isTwoBit(v.Type.DType) }) {
		returned := *written.Body[len(written.Body)-1]
		written.Body = written.Body[:len(written.Body)-1]
		for i, v := range last.Operands {
			if isTwoBit(v.Type.DType) {
				// The name contains i because one value may be several results.
				narrow := newValue(fmt.Sprintf("narrow%d_%s", i, v.Name), v.Type)
				written.Body = append(written.Body, customOp("stablehlo.convert", narrow, returned.Operands[i]))
				returned.Operands[i] = narrow
			}
		}
		written.Body = append(written.Body, &returned)
	}
	return &written
}

func (w *twoBitWidener) widenValue(v *ir.Value) *ir.Value { return w.newWideValue("", v) }

func (w *twoBitWidener) newWideValue(prefix string, v *ir.Value) *ir.Value {
	if !isTwoBit(v.Type.DType) {
		return v
	}
	if w.wideValues[v] == nil {
		wide := newValue(prefix+v.Name, ir.TensorType(byteDType(v.Type.DType), v.Type.Dims...))
		wide.Origin = v.Origin
		w.wideValues[v] = wide
	}
	return w.wideValues[v]
}

func (w *twoBitWidener) widenValues(all []*ir.Value) []*ir.Value {
	out := make([]*ir.Value, len(all))
	for i, v := range all {
		out[i] = w.widenValue(v)
	}
	return out
}

func (w *twoBitWidener) widenStatements(list []*ir.Statement) (out []*ir.Statement) {
	for _, s := range list {
		out = append(out, w.widenStatement(s)...)
	}
	return out
}

func (w *twoBitWidener) widenStatement(s *ir.Statement) []*ir.Statement {
	wide := *s
	wide.Operands, wide.Results, wide.Regions = w.widenValues(s.Operands), w.widenValues(s.Results), nil
	outer := w.inReduction
	w.inReduction = slices.Contains(reductionOps, s.Op)
	for _, r := range s.Regions {
		wide.Regions = append(wide.Regions, &ir.Region{Label: r.Label, Arguments: w.widenValues(r.Arguments),
			Body: w.widenStatements(r.Body)})
	}
	w.inReduction = outer
	if len(s.Results) != 1 || !isTwoBit(s.Results[0].Type.DType) {
		return []*ir.Statement{&wide}
	}
	if dense, ok := s.Attribute(ir.ValueKey).(*ir.Dense); ok {
		copied := *dense
		copied.Type = wide.Results[0].Type
		wide.ReplaceAttribute(ir.ValueKey, &copied)
	}
	if w.inReduction || slices.Contains(rangePreservingOps, s.Op) {
		return []*ir.Statement{&wide}
	}
	return w.wrapToTwoBits(s, &wide)
}

// wrapToTwoBits returns the statements that replace s. wide is s with 8-bit integers instead of
// 2-bit integers. wrapToTwoBits adds the statements that keep the result in the 2-bit range.
func (w *twoBitWidener) wrapToTwoBits(s, wide *ir.Statement) []*ir.Statement {
	out, unsigned := wide.Results[0], s.Results[0].Type.DType == dtypes.Uint2
	var list []*ir.Statement
	value := func(name string) *ir.Value {
		v := newValue(name+"_"+out.Name, out.Type)
		v.Origin = out.Origin
		return v
	}
	number := func(name string, n int) *ir.Value {
		v := value(name)
		list = append(list, constantOp(v, ir.Integer(n)))
		return v
	}
	op := func(name, op string, in ...*ir.Value) *ir.Value {
		v := value(name)
		list = append(list, genericOp("stablehlo."+op, v, in...))
		return v
	}
	logical, arithmetic := "shift_right_logical", "shift_right_arithmetic"
	if in := s.Operands; s.Op == "stablehlo.convert" && (in[0].Type.DType.IsFloat() || in[0].Type.DType.IsComplex()) {
		low, high := -2, 1
		if unsigned {
			low, high = 0, 3
		}
		raw := value("raw")
		wide.Results = []*ir.Value{raw}
		list = append(list, wide)
		list = append(list, genericOp("stablehlo.clamp", out, number("low", low), raw, number("high", high)))
		return list
	}
	const mask, unused = 3, 6
	switch s.Op {
	case "stablehlo.popcnt", "stablehlo.count_leading_zeros", "stablehlo." + logical:
		wide.Operands[0] = op("masked", "and", wide.Operands[0], number("mask", mask))
	case "stablehlo." + arithmetic:
		places := number("sign_places", unused)
		wide.Operands[0] = op("signed", arithmetic, op("sign", "shift_left", wide.Operands[0], places), places)
	}
	raw := value("raw")
	wide.Results = []*ir.Value{raw}
	list = append(list, wide)
	if s.Op == "stablehlo.count_leading_zeros" {
		raw = op("leading", "subtract", raw, number("unused", unused))
	}
	back := arithmetic
	if unsigned {
		back = logical
	}
	places := number("places", unused)
	return append(list, genericOp("stablehlo."+back, out, op("high", "shift_left", raw, places), places))
}
