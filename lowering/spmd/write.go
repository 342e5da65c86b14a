package spmd

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/gomlx/go-xla/stablehlo"
	"github.com/gomlx/gomlx/core/graph"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/lowering"
	"github.com/tpustrategy/tpustrategy/lowering/ir"
	"github.com/tpustrategy/tpustrategy/sharding"
)

type assembler struct {
	trace                    *Trace
	replicas, logicalDevices int
	factors                  logical.AxisFactors
	mesh                     sharding.Mesh
	lastChannel              int
	replicaProgram           bool                    // R replicas of one partition each
	callees                  map[string]*ir.Function // the functions that the step calls, as traced
	flow                     *dataFlow
	body                     []*ir.Statement // the statements of the step
	functions                []*ir.Function  // functions besides main and the step
	attributeAliases         []ir.Attribute  // the groups of the collectives of manual regions
	valueAliases             map[*ir.Value]*ir.Value
	parameters               []ir.Parameter          // see shardParameters
	parameterShards          map[*ir.Value]*ir.Value // shards of gathered parameters
	gatheredParameters       []gatheredParameter
}

// isReservedName reports whether the module uses a name for its own functions.
func isReservedName(name string) bool {
	digits, region := strings.CutPrefix(name, "region_")
	return name == stepName || region && digits != "" && strings.Trim(digits, "0123456789") == ""
}

const stepName = "step"

// Module assembles the step of a graph that was traced on t and compiled. sig has one element for
// each parameter of the graph except the replica id, and for each output. Module can be called
// several times for a graph, also with different signatures.
func (t *Trace) Module(g *graph.Graph, sig Signature) (*Module, error) {
	lowered, ok := g.Executable().(*lowering.Executable)
	if !ok || g.Backend() != t {
		return nil, untracedGraphError(g.Name())
	}
	if t.optionsErr != nil {
		return nil, t.optionsErr
	}
	return t.assemble(lowered.Program(), sig)
}

func (t *Trace) assemble(p *lowering.Program, sig Signature) (*Module, error) {
	annotations := slices.Clone(t.annotations)
	for _, tensor := range slices.Concat(sig.Arguments, sig.Results) {
		annotations = append(annotations, tensor.Annotation)
	}
	factors, err := logical.FactorAxes(t.mesh, annotations...)
	if err != nil {
		return nil, err
	}
	mesh, err := sharding.NewMesh(append([]sharding.Axis{{Name: ReplicaAxis, Size: t.opts.Replicas}},
		factors.Axes()...)...)
	if err != nil {
		return nil, &errkind.Fault{Op: "module: mesh", Class: errkind.InvalidArgumentError, Err: err}
	}
	w := &assembler{trace: t, replicas: t.opts.Replicas, logicalDevices: t.opts.LogicalDevices, factors: factors,
		mesh: mesh}
	m := &Module{Name: p.Name, Mesh: mesh, LogicalMesh: t.mesh, Replicas: 1, Partitions: mesh.Size(),
		input: &assemblyInput{t, p, sig}}
	m.Policies = t.rematPolicies()
	if t.opts.AllowReplicaProgram && t.opts.LogicalDevices == 1 {
		w.replicaProgram, m.Replicas, m.Partitions = true, mesh.Size(), 1
	}
	if sig.Steps < 0 {
		return nil, newFault(fmt.Sprintf("step %q", p.Name), fmt.Sprintf("%d times", sig.Steps),
			"use 0 for a step without a loop")
	}
	if m.Arguments, m.Results, err = w.placeTensors(p, sig); err != nil {
		return nil, err
	}
	if err := errors.Join(m.check(), m.checkWhile(sig), p.Check(m.Partitions)); err != nil {
		return nil, err
	}
	others := p.Module.Functions[1:]
	w.callees = make(map[string]*ir.Function, len(others))
	for _, f := range others {
		if isReservedName(f.Name) {
			return nil, newFault(fmt.Sprintf("function %q of the step", f.Name),
				"the module has a function of this name", "rename the function")
		}
		w.callees[f.Name] = f
	}
	w.parameters = w.shardParameters(p, m.Arguments)
	step, err := w.assembleStep(p, m)
	if err != nil {
		return nil, err
	}
	regions := len(w.functions) > 0
	for _, f := range others {
		f, err := w.resolveFunction(f)
		if err != nil {
			return nil, err
		}
		w.functions = append(w.functions, f)
	}
	program := &ir.Module{
		Name: stablehlo.NormalizeIdentifier(p.Name),
		Attributes: []ir.Attribute{{Key: "mhlo.num_replicas", Value: ir.Int32(m.Replicas)},
			{Key: "mhlo.num_partitions", Value: ir.Int32(m.Partitions)}},
		Functions: widenTwoBits(append([]*ir.Function{w.buildMain(m, p, sig), step}, w.functions...)),
	}
	if t.opts.Replicas > 1 {
		program.Aliases = append(program.Aliases, ir.Attribute{Key: string(replicaGroups),
			Value: w.partitionGroups(replicaAxes)})
	}
	if regions {
		program.Aliases = append(program.Aliases, ir.Attribute{Key: string(logicalGroups),
			Value: w.partitionGroups(t.mesh.AxisNames())})
	}
	program.Aliases = append(program.Aliases, w.attributeAliases...)
	if !w.isSinglePartition() {
		program.Meshes = []ir.Attr{meshAttr(mesh)}
	}
	if w.logicalDevices > 1 {
		program = lowering.ReplicateUnsplittableDims(program, t.opts.Target, replicateDims)
	}
	if m.Text, m.Origins, err = program.Text(); err != nil {
		return nil, &errkind.Fault{Op: "module: write", Subject: fmt.Sprintf("step %q", p.Name), Err: err}
	}
	return m, nil
}

// isSinglePartition reports whether the program has one partition and therefore no mesh. Plugins
// run Shardy only for several partitions.
func (w *assembler) isSinglePartition() bool { return w.replicaProgram || w.mesh.Size() == 1 }

// mainIsReplica reports whether the tensors of the entry function are tensors of one replica
// instead of global tensors. No computation is then manual over the replicas.
func (w *assembler) mainIsReplica() bool { return w.isSinglePartition() || w.replicas == 1 }

func (w *assembler) placeTensors(p *lowering.Program, sig Signature) (args, results []ShardedTensor, err error) {
	for i, name := range p.ParameterNames {
		if name == ReplicaIDName {
			continue
		}
		if len(args) == len(sig.Arguments) {
			return nil, nil, newFault(fmt.Sprintf("step %q", p.Name),
				fmt.Sprintf("the signature has no argument for parameter %q", name),
				"pass one argument for each parameter except the replica id")
		}
		placed, err := w.placeTensor("argument", sig.Arguments[len(args)], sig.Steps, p.Parameters[i].DType,
			p.Parameters[i].Dimensions)
		if err != nil {
			return nil, nil, err
		}
		placed.Origin = p.Main().Parameters[i].Origin
		args = append(args, placed)
	}
	if len(args) != len(sig.Arguments) || len(p.Outputs) != len(sig.Results) {
		return nil, nil, newFault(fmt.Sprintf("step %q", p.Name),
			fmt.Sprintf("the step has %d arguments and %d results, but the signature has %d and %d",
				len(args), len(p.Outputs), len(sig.Arguments), len(sig.Results)),
			"pass one entry for each argument and result")
	}
	for i, shape := range p.Outputs {
		placed, err := w.placeTensor("result", sig.Results[i], sig.Steps, shape.DType, shape.Dimensions)
		if err != nil {
			return nil, nil, err
		}
		results = append(results, placed)
	}
	return args, results, nil
}

func (w *assembler) resolveFunction(f *ir.Function) (*ir.Function, error) {
	written := *f
	written.Private = true
	var err error
	if written.Body, err = w.resolvePlaceholders(f.Body...); err != nil {
		return nil, err
	}
	return &written, nil
}

func (w *assembler) assembleStep(p *lowering.Program, m *Module) (*ir.Function, error) {
	traced, newIndex, err := w.outlinePasses(p.Main(), w.trace.passes)
	if err != nil {
		return nil, err
	}
	function := &ir.Function{Name: stepName, Private: true, Form: ir.Custom}
	for _, v := range w.parameters {
		function.Parameters = append(function.Parameters, ir.Parameter{Value: v.Value})
	}
	for _, r := range traced.Results {
		function.Results = append(function.Results, ir.Result{Type: r.Type})
	}
	// With one logical device, regions remain inline in the step.
	var regions []deviceRegion
	if w.logicalDevices > 1 {
		regions = deviceRegions(w.trace.regions, newIndex)
	}
	flow := newDataFlow(traced, regions)
	w.flow = flow
	if w.logicalDevices > 1 {
		regions = w.placeStatements(flow, p, m.Arguments).addRegions(regions)
	}
	w.valueAliases = flow.aliases
	borders := flow.regionBoundaries(regions)
	for _, b := range borders {
		for _, v := range b.exportedConstants {
			repeated, err := w.repeatConstant(v)
			if err != nil {
				return nil, err
			}
			w.body = append(w.body, repeated...)
		}
	}
	unread := flow.unreadGathers(w.parameterShards)
	for _, unit := range flow.unitOrder(regions) {
		// A region without statements has no position.
		if unit >= 0 {
			if err := w.writeRegion(flow, unit, regions[unit], borders[unit]); err != nil {
				return nil, err
			}
			continue
		}
		s := flow.statements[^unit]
		if ^unit == len(flow.statements)-1 {
			w.appendReturn(s, m.Results)
			continue
		}
		if len(s.Results) == 1 && flow.aliases[s.Results[0]] != nil || unread[^unit] {
			continue
		}
		written, err := w.resolvePlaceholders(s)
		if err != nil {
			return nil, err
		}
		w.body = append(w.body, written...)
	}
	gathers, err := w.gatherParameters()
	function.Body = append(gathers, w.body...)
	return function, err
}

// appendReturn adds the return statement of the step. It adds sharding constraints for split
// results, because the compiler aborts if it must reshard a value at the boundary of the manual
// computation.
func (w *assembler) appendReturn(s *ir.Statement, results []ShardedTensor) {
	returned := make([]*ir.Value, len(s.Operands))
	for i, v := range s.Operands {
		returned[i] = w.resolveAlias(v)
		if r := results[i]; r.Annotation.Kind() == logical.KindSplit && !w.isSinglePartition() {
			constrained := newValue(fmt.Sprintf("split_result_%d", i), v.Type)
			w.body = append(w.body, w.constraintOp(constrained, returned[i], r.Annotation))
			returned[i] = constrained
		}
	}
	w.body = append(w.body, returnOp("return", returned))
}

// dimsPerReplica returns the shape of a tensor inside the computation that is manual over the
// replicas.
func (w *assembler) dimsPerReplica(tensor ShardedTensor) []int {
	dims := slices.Clone(tensor.GlobalDims)
	if tensor.PerReplica {
		dim := 0
		if tensor.PerStep {
			dim = 1
		}
		dims[dim] /= w.replicas
	}
	if tensor.ReplicaShard.IsSharded() {
		dims[tensor.ReplicaShard.Dim] /= w.replicas
	}
	return dims
}
