package spmd

import (
	"slices"

	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/lowering/ir"
	"github.com/tpustrategy/tpustrategy/sharding"
)

// Builders of the ops that this package adds around the statements of a step.

func named(name string, t ir.Type) *ir.Value { return &ir.Value{Name: name, Type: t} }

// inline returns an op with one result in the generic form.
func inline(op string, out *ir.Value, in ...*ir.Value) *ir.Statement {
	return &ir.Statement{Op: op, Operands: in, Results: []*ir.Value{out}, Form: ir.Inline}
}

// short returns an op with one result in the custom form.
func short(op string, out *ir.Value, in ...*ir.Value) *ir.Statement {
	return &ir.Statement{Op: op, Operands: in, Results: []*ir.Value{out}, Form: ir.Short}
}

func constant(out *ir.Value, number ir.Number) *ir.Statement {
	return short("stablehlo.constant", out).With(ir.Elements, &ir.Dense{Type: out.Type, Splat: &number})
}

// empty returns a tensor without elements, which collectives reject as operands.
func empty(out *ir.Value) *ir.Statement {
	return short("stablehlo.constant", out).With(ir.Elements, &ir.Dense{Type: out.Type})
}

// unchanged returns an op that copies its operand. It replaces constraints and collectives on a
// single device.
func unchanged(out, in *ir.Value) *ir.Statement { return short("stablehlo.reshape", out, in) }

func compare(direction string, out, a, b *ir.Value) *ir.Statement {
	return short("stablehlo.compare", out, a, b).With(ir.Direction, ir.Raw(direction))
}

// call calls a function. Its results are pack#0 and so on.
func call(pack, function string, types []ir.Type, in []*ir.Value) *ir.Statement {
	return &ir.Statement{Op: "func.call", Operands: in, Results: ir.Pack(pack, types...), Pack: pack,
		Attributes: []ir.Attribute{{Key: ir.Callee, Value: ir.Symbol(function)}}, Form: ir.Short}
}

// give returns the terminator of a function or a region.
func give(op string, values []*ir.Value) *ir.Statement {
	return &ir.Statement{Op: op, Operands: values, Form: ir.Short}
}

// manual returns a computation that is manual over axes. body receives the shards of in on a
// device.
func manual(pack string, over []string, in []*ir.Value, inSpecs []sharding.Spec, types []ir.Type, outSpecs []sharding.Spec, body *ir.Region) *ir.Statement {
	return &ir.Statement{Op: "sdy.manual_computation", Operands: in, Results: ir.Pack(pack, types...), Pack: pack,
		Attributes: []ir.Attribute{{Key: "in_shardings", Value: bares(inSpecs)}, {Key: "out_shardings", Value: bares(outSpecs)}, {Key: "manual_axes", Value: axes(over)}},
		Regions:    []*ir.Region{body}, Form: ir.Short}
}

// constrain constrains a value to the sharding of annotation a.
func (w *writer) constrain(out, in *ir.Value, a logical.Annotation) *ir.Statement {
	return constrained(out, in, a.Spec(in.Type.Rank(), w.factors))
}

// keepUnsplit constrains a value to be replicated in dims and leaves the other dimensions open.
func keepUnsplit(out, in *ir.Value, dims []int) *ir.Statement {
	open := sharding.Unconstrained(in.Type.Rank()).Dims()
	for _, d := range dims {
		open[d] = sharding.Dim{}
	}
	return constrained(out, in, sharding.NewSpec(open...))
}

func constrained(out, in *ir.Value, spec sharding.Spec) *ir.Statement {
	return short("sdy.sharding_constraint", out, in).With(ir.Sharding, innerSharding(spec))
}

// counted returns an iota, the indices of a vector.
func counted(out *ir.Value) *ir.Statement {
	return short("stablehlo.iota", out).With(ir.Dimension, ir.Raw("0"))
}

// combiner returns the region with which a collective combines two elements.
func combiner(out *ir.Value, op string) *ir.Region {
	t := out.Type.Element()
	lhs, rhs, both := named("lhs_"+out.Name, t), named("rhs_"+out.Name, t), named("both_"+out.Name, t)
	return &ir.Region{Label: "combine", Arguments: []*ir.Value{lhs, rhs},
		Body: []*ir.Statement{short("stablehlo."+op, both, lhs, rhs), give("stablehlo.return", []*ir.Value{both})}}
}

// collect returns a collective op among groups. own are its further attributes, which come first.
// op combines two elements; it is "" for a collective that combines none.
func (w *writer) collect(name string, out, in *ir.Value, op string, among ir.Alias, own ...ir.Attribute) *ir.Statement {
	w.channels++
	s := &ir.Statement{Op: name, Operands: []*ir.Value{in}, Results: []*ir.Value{out}, Form: ir.Inline,
		Attributes: append(slices.Clip(own), ir.Attribute{Key: "channel_handle", Value: channel(w.channels)},
			ir.Attribute{Key: "replica_groups", Value: among}, ir.Attribute{Key: "use_global_device_ids"})}
	if op != "" {
		s.Regions = []*ir.Region{combiner(out, op)}
	}
	return s
}

// send sends the value of one device of a replica to all of them. The other devices must have
// zeros.
func (w *writer) send(out, in *ir.Value) []*ir.Statement {
	return w.collectives(sentMark{}, out, in)
}

// sentMark is the mark of the all-reduce of send.
type sentMark struct{}

func (sentMark) transfer(*writer) (transfer, bool) { return moveOne, true }

func (sentMark) write(w *writer, out, in *ir.Value) *ir.Statement {
	if out.Type.Empty() {
		return empty(out)
	}
	return w.collect("stablehlo.all_reduce", out, in, combines(Only, in.Type.DType), logicalGroups)
}

// where0 runs statements on devices where a number is 0, and returns zeros on others. It uses
// stablehlo.case, which compilers keep. They may replace a stablehlo.if by a select, for which
// every device runs the statements unless they are expensive, such as a product.
func where0(number *ir.Value, pack string, run []*ir.Statement, results, zeros []*ir.Value) *ir.Statement {
	skip, types := &ir.Region{}, make([]ir.Type, len(zeros))
	for i, zero := range zeros {
		types[i] = zero.Type
		skip.Body = append(skip.Body, constant(zero, ir.Zero(zero.Type.DType)))
	}
	skip.Body = append(skip.Body, give("stablehlo.return", zeros))
	run = append(run, give("stablehlo.return", results))
	return &ir.Statement{Op: "stablehlo.case", Operands: []*ir.Value{number}, Pack: pack, Results: ir.Pack(pack, types...),
		Regions: []*ir.Region{{Body: run}, skip}, Form: ir.Inline}
}
