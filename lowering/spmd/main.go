package spmd

import (
	"fmt"
	"slices"

	"github.com/gomlx/compute/dtypes"

	"github.com/tpustrategy/tpustrategy/lowering"
	"github.com/tpustrategy/tpustrategy/lowering/ir"
	"github.com/tpustrategy/tpustrategy/sharding"
)

// mainBuilder builds the entry function, whose arguments and results are global tensors. The
// function calls the step, once or in a loop, inside a computation that is manual over the
// replicas.
type mainBuilder struct {
	assembler *assembler
	module    *Module
	steps     int
	while     bool // the first result is the loop condition

	main                          *ir.Function
	outer, inner                  []*ir.Value // of the manual computation
	inSpecs, outSpecs             []sharding.Spec
	replicaIDVector               *ir.Value   // the replica ids, if the step reads its own id
	stepArguments, stepParameters []*ir.Value // the step's operands, in the body and as its parameters
	perStepArgument               []int       // the argument that an operand is a slice of, or -1
	argumentIndex                 []int       // the argument of an operand, or -1 for the replica id
	stepTypes, mainTypes          []ir.Type   // of the step's results, and of main's
	returns                       []*ir.Value // the results of the manual computation
	prologue, epilogue            []*ir.Statement
}

var int32Scalar, boolScalar = ir.TensorType(dtypes.Int32), ir.TensorType(dtypes.Bool)

func (w *assembler) buildMain(m *Module, p *lowering.Program, sig Signature) *ir.Function {
	e := &mainBuilder{assembler: w, module: m, steps: sig.Steps, while: sig.While,
		main: &ir.Function{Name: "main", Form: ir.Custom}}
	e.addArguments(p)
	e.addResults(p)
	f := e.main
	if e.replicaIDVector != nil {
		f.Body = append(f.Body, e.replicaIDs()...)
	}
	body := slices.Concat(e.prologue, e.callStep(), e.epilogue)
	if w.mainIsReplica() {
		f.Body = append(append(f.Body, body...), returnOp("return", e.returns))
		return f
	}
	run := manualComputationOp("out", []string{ReplicaAxis}, e.outer, e.inSpecs, e.mainTypes, e.outSpecs,
		&ir.Region{Arguments: e.inner, Body: append(body, returnOp("sdy.return", e.returns))})
	f.Body = append(f.Body, run, returnOp("return", run.Results))
	return f
}

// replicaIDs returns statements that compute a vector of replica ids, one element for each replica.
func (e *mainBuilder) replicaIDs() []*ir.Statement {
	if !e.assembler.replicaProgram {
		return []*ir.Statement{iotaOp(e.replicaIDVector)}
	}
	number, scalar := newValue("replica_number", ir.TensorType(dtypes.Uint32)), newValue("replica_scalar", int32Scalar)
	return []*ir.Statement{customOp("stablehlo.replica_id", number), customOp("stablehlo.convert", scalar, number),
		copyOp(e.replicaIDVector, scalar)}
}

func (e *mainBuilder) addArguments(p *lowering.Program) {
	next := 0
	for i, parameter := range e.assembler.parameters {
		typ, local := parameter.Type, fmt.Sprintf("local%d", i)
		e.stepParameters = append(e.stepParameters, parameter.Value)
		if p.ParameterNames[i] == ReplicaIDName {
			e.replicaIDVector = newValue("replica_ids", typ.Stacked(e.assembler.replicas))
			own := newValue(local, typ.Stacked(1))
			e.outer, e.inner = append(e.outer, e.replicaIDVector), append(e.inner, own)
			e.inSpecs = append(e.inSpecs, sharding.P(ReplicaAxis))
			if e.assembler.mainIsReplica() {
				e.replicaIDVector.Type = typ.Stacked(1)
				own = e.replicaIDVector
			}
			id := newValue("replica_id", typ)
			e.prologue = append(e.prologue, copyOp(id, own))
			e.stepArguments, e.perStepArgument, e.argumentIndex = append(e.stepArguments, id),
				append(e.perStepArgument, -1), append(e.argumentIndex, -1)
			continue
		}
		a := e.module.Arguments[next]
		global, shard := newValue(fmt.Sprintf("arg%d", next), typ.WithDims(a.GlobalDims...)),
			newValue(local, typ.WithDims(e.assembler.dimsPerReplica(a)...))
		if e.assembler.mainIsReplica() {
			global.Type, shard = shard.Type, global
		}
		e.main.Parameters = append(e.main.Parameters, ir.Parameter{Value: global, Attributes: mainAttributes(a, false,
			e.assembler.isSinglePartition())})
		e.outer, e.inner = append(e.outer, global), append(e.inner, shard)
		e.inSpecs = append(e.inSpecs, a.Spec)
		slice := -1
		if a.PerStep {
			slice = next
		} else if !shard.Type.Equal(typ) {
			scalar := newValue(fmt.Sprintf("scalar%d", i), typ)
			e.prologue = append(e.prologue, copyOp(scalar, shard))
			shard = scalar
		}
		e.stepArguments, e.perStepArgument, e.argumentIndex = append(e.stepArguments, shard),
			append(e.perStepArgument, slice), append(e.argumentIndex, next)
		next++
	}
}

func (e *mainBuilder) addResults(p *lowering.Program) {
	pack, first := "stepped", 0
	if e.steps > 0 {
		pack, first = "loop", 1 // index 0 is the counter
	}
	for i, r := range e.module.Results {
		typ := p.Main().Results[i].Type
		shard := typ.WithDims(e.assembler.dimsPerReplica(r)...)
		global := typ.WithDims(r.GlobalDims...)
		if e.assembler.mainIsReplica() {
			global = shard
		}
		e.main.Results = append(e.main.Results, ir.Result{Type: global,
			Attributes: mainAttributes(r, false, e.assembler.isSinglePartition())})
		e.mainTypes, e.outSpecs = append(e.mainTypes, global), append(e.outSpecs, r.Spec)
		e.stepTypes = append(e.stepTypes, typ)
		value := newValue(fmt.Sprintf("%s#%d", pack, first+i), typ)
		if !shard.Equal(typ) {
			vector := newValue(fmt.Sprintf("vector%d", i), shard)
			e.epilogue = append(e.epilogue, copyOp(vector, value))
			value = vector
		}
		e.returns = append(e.returns, value)
	}
}

func (e *mainBuilder) callStep() []*ir.Statement {
	if e.steps == 0 {
		return []*ir.Statement{callOp("stepped", "step", e.stepTypes, e.stepArguments)}
	}
	// The loop carries its counter and every result. The initial value of a variable is its
	// argument; other results start as zeros.
	initial, carried := make([]*ir.Value, len(e.module.Results)), make([]*ir.Value, len(e.module.Results))
	conditionArguments := make([]*ir.Value, len(e.module.Results))
	for i, t := range e.stepTypes {
		conditionArguments[i], carried[i] = newValue(fmt.Sprintf("before%d", i), t),
			newValue(fmt.Sprintf("carried%d", i), t)
	}
	operands := slices.Clone(e.stepArguments)
	for i, at := range e.argumentIndex {
		if at >= 0 && e.module.Arguments[at].Donated {
			result := e.module.Arguments[at].Result
			initial[result], operands[i] = e.stepArguments[i], carried[result]
		}
	}
	var list []*ir.Statement
	for i, t := range e.stepTypes {
		if initial[i] == nil {
			initial[i] = newValue(fmt.Sprintf("start%d", i), t)
			start := ir.Zero(e.module.Results[i].DType)
			if e.while && i == 0 {
				start = ir.True()
			}
			list = append(list, constantOp(initial[i], start))
		}
	}
	first := newValue("first", int32Scalar)
	loop := &ir.Statement{Op: "stablehlo.while", Operands: slices.Concat([]*ir.Value{first}, initial),
		ResultName: "loop",
		Results:    ir.NewResults("loop", slices.Concat([]ir.Type{int32Scalar}, e.stepTypes)...),
		Regions:    []*ir.Region{e.loopCondition(conditionArguments), e.loopBody(carried, operands)}, Form: ir.Generic}
	return append(list, constantOp(first, ir.Integer(0)), loop)
}

func (e *mainBuilder) loopCondition(arguments []*ir.Value) *ir.Region {
	count, steps, again := newValue("count", int32Scalar), newValue("steps", int32Scalar),
		newValue("again", ir.TensorType(dtypes.Bool))
	body := []*ir.Statement{constantOp(steps, ir.Integer(e.steps)), compareOp("LT", again, count, steps)}
	if e.while {
		both := newValue("both", again.Type)
		body = append(body, customOp("stablehlo.and", both, again, arguments[0]))
		again = both
	}
	return &ir.Region{Label: "more", Arguments: slices.Concat([]*ir.Value{count}, arguments),
		Body: append(body, returnOp("stablehlo.return", []*ir.Value{again}))}
}

func (e *mainBuilder) loopBody(carried, operands []*ir.Value) *ir.Region {
	index, zero := newValue("index", int32Scalar), newValue("zero", int32Scalar)
	body := []*ir.Statement{constantOp(zero, ir.Integer(0))}
	for i, at := range e.perStepArgument {
		if at < 0 {
			continue
		}
		// The batch of this step.
		stacked := e.stepArguments[i]
		sizes := append([]int{1}, stacked.Type.Dims[1:]...)
		element, batch := newValue(fmt.Sprintf("cut%d", i), stacked.Type.WithDims(sizes...)),
			newValue(fmt.Sprintf("batch%d", i), e.stepParameters[i].Type)
		starts := append([]*ir.Value{stacked, index}, slices.Repeat([]*ir.Value{zero}, len(sizes)-1)...)
		body = append(body, genericOp("stablehlo.dynamic_slice", element, starts...).AddAttribute("slice_sizes",
			ir.Ints(sizes)), copyOp(batch, element))
		operands[i] = batch
	}
	one, next := newValue("one", int32Scalar), newValue("next", int32Scalar)
	stepped := callOp("stepped", "step", e.stepTypes, operands)
	body = append(body, stepped, constantOp(one, ir.Integer(1)), customOp("stablehlo.add", next, index, one),
		returnOp("stablehlo.return", slices.Concat([]*ir.Value{next}, stepped.Results)))
	return &ir.Region{Label: "step", Arguments: slices.Concat([]*ir.Value{index}, carried), Body: body}
}
