package spmd

import (
	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/lowering/ir"
	"github.com/tpustrategy/tpustrategy/sharding"
)

// The functions in this file create ops that are added around the statements of a step.

func newValue(name string, t ir.Type) *ir.Value { return &ir.Value{Name: name, Type: t} }

// genericOp returns an op with one result in generic form.
func genericOp(op string, out *ir.Value, in ...*ir.Value) *ir.Statement {
	return &ir.Statement{Op: op, Operands: in, Results: []*ir.Value{out}, Form: ir.Generic}
}

// customOp returns an op with one result in custom form.
func customOp(op string, out *ir.Value, in ...*ir.Value) *ir.Statement {
	return &ir.Statement{Op: op, Operands: in, Results: []*ir.Value{out}, Form: ir.Custom}
}

func constantOp(out *ir.Value, number ir.Number) *ir.Statement {
	return customOp("stablehlo.constant", out).AddAttribute(ir.ValueKey, &ir.Dense{Type: out.Type, Splat: &number})
}

// emptyConstantOp returns a constant without elements. It replaces a collective of an empty tensor,
// because compilers reject such a collective.
func emptyConstantOp(out *ir.Value) *ir.Statement {
	return customOp("stablehlo.constant", out).AddAttribute(ir.ValueKey, &ir.Dense{Type: out.Type})
}

// copyOp returns an op that copies its operand. On a single device, it replaces sharding
// constraints and collectives.
func copyOp(out, in *ir.Value) *ir.Statement { return customOp("stablehlo.reshape", out, in) }

func compareOp(direction string, out, a, b *ir.Value) *ir.Statement {
	return customOp("stablehlo.compare", out, a, b).AddAttribute(ir.ComparisonDirectionKey, ir.Raw(direction))
}

// callOp returns a call of a function. Its results are named pack#0, pack#1 and so on.
func callOp(pack, function string, types []ir.Type, in []*ir.Value) *ir.Statement {
	return &ir.Statement{Op: "func.call", Operands: in, Results: ir.NewResults(pack, types...), ResultName: pack,
		Attributes: []ir.Attribute{{Key: ir.CalleeKey, Value: ir.Symbol(function)}}, Form: ir.Custom}
}

func returnOp(op string, values []*ir.Value) *ir.Statement {
	return &ir.Statement{Op: op, Operands: values, Form: ir.Custom}
}

// manualComputationOp returns a computation that is manual over the given axes. body receives a
// device's shards of in.
func manualComputationOp(pack string, over []string, in []*ir.Value, inSpecs []sharding.Spec, types []ir.Type,
	outSpecs []sharding.Spec, body *ir.Region) *ir.Statement {
	return &ir.Statement{Op: "sdy.manual_computation", Operands: in, Results: ir.NewResults(pack, types...),
		ResultName: pack,
		Attributes: []ir.Attribute{{Key: "in_shardings", Value: bareShardingsAttr(inSpecs)},
			{Key: "out_shardings", Value: bareShardingsAttr(outSpecs)},
			{Key: "manual_axes", Value: manualAxesAttr(over)}},
		Regions: []*ir.Region{body}, Form: ir.Custom}
}

func (w *assembler) constraintOp(out, in *ir.Value, a logical.Annotation) *ir.Statement {
	return shardingConstraintOp(out, in, a.Spec(in.Type.Rank(), w.factors))
}

// replicateDims returns a constraint that replicates dims of a value and leaves the sharding of the
// other dimensions to the partitioner.
func replicateDims(out, in *ir.Value, dims []int) *ir.Statement {
	open := sharding.Unconstrained(in.Type.Rank()).Dims()
	for _, d := range dims {
		open[d] = sharding.Dim{}
	}
	return shardingConstraintOp(out, in, sharding.NewSpec(open...))
}

func shardingConstraintOp(out, in *ir.Value, spec sharding.Spec) *ir.Statement {
	return customOp("sdy.sharding_constraint", out, in).AddAttribute(ir.ShardingKey, bareShardingAttr(spec))
}

func iotaOp(out *ir.Value) *ir.Statement {
	return customOp("stablehlo.iota", out).AddAttribute(ir.IotaDimensionKey, ir.Raw("0"))
}

// combinerRegion returns the region in which a collective or reduction combines two elements with
// op.
func combinerRegion(out *ir.Value, op string) *ir.Region {
	t := out.Type.ElementType()
	lhs, rhs, both := newValue("lhs_"+out.Name, t), newValue("rhs_"+out.Name, t), newValue("both_"+out.Name, t)
	return &ir.Region{Label: "combine", Arguments: []*ir.Value{lhs, rhs},
		Body: []*ir.Statement{customOp("stablehlo."+op, both, lhs, rhs),
			returnOp("stablehlo.return", []*ir.Value{both})}}
}

// caseZeroOp returns a stablehlo.case that runs statements if number is 0, and returns zeros
// otherwise. It does not use stablehlo.if, because compilers may replace an if by a select, and
// every device would then run the statements.
func caseZeroOp(number *ir.Value, pack string, run []*ir.Statement, results, zeros []*ir.Value) *ir.Statement {
	skip, types := &ir.Region{}, make([]ir.Type, len(zeros))
	for i, zero := range zeros {
		types[i] = zero.Type
		skip.Body = append(skip.Body, constantOp(zero, ir.Zero(zero.Type.DType)))
	}
	skip.Body = append(skip.Body, returnOp("stablehlo.return", zeros))
	run = append(run, returnOp("stablehlo.return", results))
	return &ir.Statement{Op: "stablehlo.case", Operands: []*ir.Value{number}, ResultName: pack,
		Results: ir.NewResults(pack, types...),
		Regions: []*ir.Region{{Body: run}, skip}, Form: ir.Generic}
}
