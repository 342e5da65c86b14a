package spmd

import (
	"fmt"
	"slices"

	"github.com/gomlx/compute/dtypes"

	"github.com/tpustrategy/tpustrategy/lowering"
	"github.com/tpustrategy/tpustrategy/lowering/ir"
	"github.com/tpustrategy/tpustrategy/sharding"
)

// entry is the entry function under construction: global tensors as arguments and results, and,
// inside the computation that is manual over the replicas, the step, called once or in a loop.
type entry struct {
	w     *writer
	m     *Module
	steps int
	while bool // the first result is the loop condition

	main              *ir.Function
	outer, inner      []*ir.Value // of the manual computation
	inSpecs, outSpecs []sharding.Spec
	ids               *ir.Value   // the replica ids, if the step reads its own id
	values, operands  []*ir.Value // the step's operands, in the body and as its parameters
	perStep           []int       // the argument that an operand is a slice of, or -1
	argument          []int       // the argument of an operand, or -1 for the replica id
	stepTypes, global []ir.Type   // of the step's results, and of main's
	returns           []*ir.Value // the results of the manual computation
	pre, post         []*ir.Statement
}

var int32s, boolean = ir.Tensor(dtypes.Int32), ir.Tensor(dtypes.Bool)

// main returns the entry function.
func (w *writer) main(m *Module, p *lowering.Program, sig Signature) *ir.Function {
	e := &entry{w: w, m: m, steps: sig.Steps, while: sig.While, main: &ir.Function{Name: "main", Form: ir.Short}}
	e.takeArguments(p)
	e.giveResults(p)
	f := e.main
	if e.ids != nil {
		f.Body = append(f.Body, e.replicaIDs()...)
	}
	body := slices.Concat(e.pre, e.call(), e.post)
	if w.whole() {
		f.Body = append(append(f.Body, body...), give("return", e.returns))
		return f
	}
	run := manual("out", []string{ReplicaAxis}, e.outer, e.inSpecs, e.global, e.outSpecs,
		&ir.Region{Arguments: e.inner, Body: append(body, give("sdy.return", e.returns))})
	f.Body = append(f.Body, run, give("return", run.Results))
	return f
}

// replicaIDs returns the vector of replica numbers, of which each manual computation receives its
// own element.
func (e *entry) replicaIDs() []*ir.Statement {
	if !e.w.programs {
		return []*ir.Statement{counted(e.ids)}
	}
	number, scalar := named("replica_number", ir.Tensor(dtypes.Uint32)), named("replica_scalar", int32s)
	return []*ir.Statement{short("stablehlo.replica_id", number), short("stablehlo.convert", scalar, number), unchanged(e.ids, scalar)}
}

// takeArguments converts main's arguments to the step's operands.
func (e *entry) takeArguments(p *lowering.Program) {
	next := 0
	for i, parameter := range e.w.own {
		typ, local := parameter.Type, fmt.Sprintf("local%d", i)
		e.operands = append(e.operands, parameter.Value)
		if p.ParameterNames[i] == ReplicaIDName {
			e.ids = named("replica_ids", typ.Stacked(e.w.replicas))
			own := named(local, typ.Stacked(1))
			e.outer, e.inner = append(e.outer, e.ids), append(e.inner, own)
			e.inSpecs = append(e.inSpecs, sharding.P(ReplicaAxis))
			if e.w.whole() {
				e.ids.Type = typ.Stacked(1)
				own = e.ids
			}
			id := named("replica_id", typ)
			e.pre = append(e.pre, unchanged(id, own))
			e.values, e.perStep, e.argument = append(e.values, id), append(e.perStep, -1), append(e.argument, -1)
			continue
		}
		a := e.m.Arguments[next]
		global, shard := named(fmt.Sprintf("arg%d", next), typ.With(a.Global...)), named(local, typ.With(e.w.manual(a)...))
		if e.w.whole() {
			global.Type, shard = shard.Type, global
		}
		e.main.Parameters = append(e.main.Parameters, ir.Parameter{Value: global, Attributes: edge(a, false, e.w.single())})
		e.outer, e.inner = append(e.outer, global), append(e.inner, shard)
		e.inSpecs = append(e.inSpecs, a.Spec)
		slice := -1
		if a.PerStep {
			slice = next
		} else if !shard.Type.Equal(typ) {
			scalar := named(fmt.Sprintf("scalar%d", i), typ)
			e.pre = append(e.pre, unchanged(scalar, shard))
			shard = scalar
		}
		e.values, e.perStep, e.argument = append(e.values, shard), append(e.perStep, slice), append(e.argument, next)
		next++
	}
}

// giveResults converts the step's results to main's results.
func (e *entry) giveResults(p *lowering.Program) {
	pack, first := "stepped", 0
	if e.steps > 0 {
		pack, first = "loop", 1 // index 0 is the counter
	}
	for i, r := range e.m.Results {
		typ := p.Main().Results[i].Type
		shard := typ.With(e.w.manual(r)...)
		global := typ.With(r.Global...)
		if e.w.whole() {
			global = shard
		}
		e.main.Results = append(e.main.Results, ir.Result{Type: global, Attributes: edge(r, false, e.w.single())})
		e.global, e.outSpecs = append(e.global, global), append(e.outSpecs, r.Spec)
		e.stepTypes = append(e.stepTypes, typ)
		value := named(fmt.Sprintf("%s#%d", pack, first+i), typ)
		if !shard.Equal(typ) {
			vector := named(fmt.Sprintf("vector%d", i), shard)
			e.post = append(e.post, unchanged(vector, value))
			value = vector
		}
		e.returns = append(e.returns, value)
	}
}

// call returns the statements that call the step, once or in a loop.
func (e *entry) call() []*ir.Statement {
	if e.steps == 0 {
		return []*ir.Statement{call("stepped", "step", e.stepTypes, e.values)}
	}
	// The loop carries its counter and every result. The initial value of a variable is its
	// argument; other results start as zeros.
	init, carried := make([]*ir.Value, len(e.m.Results)), make([]*ir.Value, len(e.m.Results))
	before := make([]*ir.Value, len(e.m.Results))
	for i, t := range e.stepTypes {
		before[i], carried[i] = named(fmt.Sprintf("before%d", i), t), named(fmt.Sprintf("carried%d", i), t)
	}
	operands := slices.Clone(e.values)
	for i, at := range e.argument {
		if at >= 0 && e.m.Arguments[at].Donated {
			result := e.m.Arguments[at].Result
			init[result], operands[i] = e.values[i], carried[result]
		}
	}
	var list []*ir.Statement
	for i, t := range e.stepTypes {
		if init[i] == nil {
			init[i] = named(fmt.Sprintf("start%d", i), t)
			start := ir.Zero(e.m.Results[i].DType)
			if e.while && i == 0 {
				start = ir.True()
			}
			list = append(list, constant(init[i], start))
		}
	}
	first := named("first", int32s)
	loop := &ir.Statement{Op: "stablehlo.while", Operands: slices.Concat([]*ir.Value{first}, init), Pack: "loop",
		Results: ir.Pack("loop", slices.Concat([]ir.Type{int32s}, e.stepTypes)...),
		Regions: []*ir.Region{e.more(before), e.step(carried, operands)}, Form: ir.Inline}
	return append(list, constant(first, ir.Integer(0)), loop)
}

// more returns the loop condition.
func (e *entry) more(before []*ir.Value) *ir.Region {
	count, steps, again := named("count", int32s), named("steps", int32s), named("again", ir.Tensor(dtypes.Bool))
	body := []*ir.Statement{constant(steps, ir.Integer(e.steps)), compare("LT", again, count, steps)}
	if e.while {
		both := named("both", again.Type)
		body = append(body, short("stablehlo.and", both, again, before[0]))
		again = both
	}
	return &ir.Region{Label: "more", Arguments: slices.Concat([]*ir.Value{count}, before),
		Body: append(body, give("stablehlo.return", []*ir.Value{again}))}
}

// step returns the loop body.
func (e *entry) step(carried, operands []*ir.Value) *ir.Region {
	index, zero := named("index", int32s), named("zero", int32s)
	body := []*ir.Statement{constant(zero, ir.Integer(0))}
	for i, at := range e.perStep {
		if at < 0 {
			continue
		}
		// The batch of this step.
		stacked := e.values[i]
		sizes := append([]int{1}, stacked.Type.Dims[1:]...)
		cut, batch := named(fmt.Sprintf("cut%d", i), stacked.Type.With(sizes...)), named(fmt.Sprintf("batch%d", i), e.operands[i].Type)
		starts := append([]*ir.Value{stacked, index}, slices.Repeat([]*ir.Value{zero}, len(sizes)-1)...)
		body = append(body, inline("stablehlo.dynamic_slice", cut, starts...).With("slice_sizes", ir.Ints(sizes)), unchanged(batch, cut))
		operands[i] = batch
	}
	one, next := named("one", int32s), named("next", int32s)
	stepped := call("stepped", "step", e.stepTypes, operands)
	body = append(body, stepped, constant(one, ir.Integer(1)), short("stablehlo.add", next, index, one),
		give("stablehlo.return", slices.Concat([]*ir.Value{next}, stepped.Results)))
	return &ir.Region{Label: "step", Arguments: slices.Concat([]*ir.Value{index}, carried), Body: body}
}
