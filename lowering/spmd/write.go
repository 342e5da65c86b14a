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

// writer assembles one module.
type writer struct {
	trace                    *Trace
	replicas, logicalDevices int
	factors                  logical.Factors
	mesh                     sharding.Mesh
	channels                 int
	programs                 bool                    // R replicas of one partition each
	called                   map[string]*ir.Function // the functions that the step calls, as traced
	flow                     *flow
	body                     []*ir.Statement // the statements of the step
	functions                []*ir.Function  // functions besides main and the step
	aliases                  []ir.Attribute  // the groups of the collectives of manual regions
	alias                    map[*ir.Value]*ir.Value
	own                      []ir.Parameter          // see parameters
	parts                    map[*ir.Value]*ir.Value // shards of gathered parameters
	wholes                   []wholeValue
}

// reserved reports whether a function has the name of one of the module's own functions.
func reserved(name string) bool {
	digits, region := strings.CutPrefix(name, "region_")
	return name == stepName || region && digits != "" && strings.Trim(digits, "0123456789") == ""
}

const stepName = "step"

// Module assembles the step of a graph that was traced on t and compiled. sig has one entry for
// each parameter of the graph except the replica id, and for each output. A graph can be assembled
// several times, also with other signatures.
func (t *Trace) Module(g *graph.Graph, sig Signature) (*Module, error) {
	lowered, ok := g.Executable().(*lowering.Executable)
	if !ok || g.Backend() != t {
		return nil, untraced(g.Name())
	}
	if t.bad != nil {
		return nil, t.bad
	}
	return t.module(lowered.Program(), sig)
}

// module assembles a program that was traced on t.
func (t *Trace) module(p *lowering.Program, sig Signature) (*Module, error) {
	annotations := slices.Clone(t.annotations)
	for _, tensor := range slices.Concat(sig.Arguments, sig.Results) {
		annotations = append(annotations, tensor.Annotation)
	}
	factors, err := logical.Factor(t.mesh, annotations...)
	if err != nil {
		return nil, err
	}
	mesh, err := sharding.NewMesh(append([]sharding.Axis{{Name: ReplicaAxis, Size: t.opts.Replicas}}, factors.Axes()...)...)
	if err != nil {
		return nil, &errkind.Fault{Op: "module: mesh", Class: errkind.InvalidArgumentError, Err: err}
	}
	w := &writer{trace: t, replicas: t.opts.Replicas, logicalDevices: t.opts.LogicalDevices, factors: factors, mesh: mesh}
	m := &Module{Name: p.Name, Mesh: mesh, Logical: t.mesh, Replicas: 1, Partitions: mesh.Size(), source: &source{t, p, sig}}
	m.Policies = t.policies()
	if t.opts.Programs && t.opts.LogicalDevices == 1 {
		w.programs, m.Replicas, m.Partitions = true, mesh.Size(), 1
	}
	if sig.Steps < 0 {
		return nil, fault(fmt.Sprintf("step %q", p.Name), fmt.Sprintf("%d times", sig.Steps), "use 0 for a step without a loop")
	}
	if m.Arguments, m.Results, err = w.borders(p, sig); err != nil {
		return nil, err
	}
	if err := errors.Join(m.check(), m.checkWhile(sig), p.Check(m.Partitions)); err != nil {
		return nil, err
	}
	others := p.Module.Functions[1:]
	w.called = make(map[string]*ir.Function, len(others))
	for _, f := range others {
		if reserved(f.Name) {
			return nil, fault(fmt.Sprintf("function %q of the step", f.Name), "the module has a function of this name", "name it otherwise")
		}
		w.called[f.Name] = f
	}
	w.own = w.parameters(p, m.Arguments)
	step, err := w.step(p, m)
	if err != nil {
		return nil, err
	}
	regions := len(w.functions) > 0
	for _, f := range others {
		f, err := w.function(f)
		if err != nil {
			return nil, err
		}
		w.functions = append(w.functions, f)
	}
	program := &ir.Module{
		Name:       stablehlo.NormalizeIdentifier(p.Name),
		Attributes: []ir.Attribute{{Key: "mhlo.num_replicas", Value: ir.Int32(m.Replicas)}, {Key: "mhlo.num_partitions", Value: ir.Int32(m.Partitions)}},
		Functions:  widenTwoBits(append([]*ir.Function{w.main(m, p, sig), step}, w.functions...)),
	}
	if t.opts.Replicas > 1 {
		program.Aliases = append(program.Aliases, ir.Attribute{Key: string(replicaGroups), Value: w.partitionsOver([]string{ReplicaAxis})})
	}
	if regions {
		program.Aliases = append(program.Aliases, ir.Attribute{Key: string(logicalGroups), Value: w.partitionsOver(t.mesh.AxisNames())})
	}
	program.Aliases = append(program.Aliases, w.aliases...)
	if !w.single() {
		program.Meshes = []ir.Attr{meshDeclaration(mesh)}
	}
	if w.logicalDevices > 1 {
		program = lowering.GatherWalkedDims(program, t.opts.Target, keepUnsplit)
	}
	if m.Text, m.Origins, err = program.Text(); err != nil {
		return nil, &errkind.Fault{Op: "module: write", Subject: fmt.Sprintf("step %q", p.Name), Err: err}
	}
	return m, nil
}

// single reports whether the program has only one partition, and therefore no mesh: the plugins run
// Shardy's passes only for several partitions.
func (w *writer) single() bool { return w.programs || w.mesh.Size() == 1 }

// whole reports whether main's tensors are the tensors of a replica, so that no computation is
// manual over the replicas.
func (w *writer) whole() bool { return w.single() || w.replicas == 1 }

// borders places the step's arguments and results.
func (w *writer) borders(p *lowering.Program, sig Signature) (args, results []ShardedTensor, err error) {
	for i, name := range p.ParameterNames {
		if name == ReplicaIDName {
			continue
		}
		if len(args) == len(sig.Arguments) {
			return nil, nil, fault(fmt.Sprintf("step %q", p.Name), fmt.Sprintf("it has parameter %q, for which the signature has no argument", name), "give the signature an argument for each parameter but the replica id")
		}
		placed, err := w.place("argument", sig.Arguments[len(args)], sig.Steps, p.Parameters[i].DType, p.Parameters[i].Dimensions)
		if err != nil {
			return nil, nil, err
		}
		placed.Origin = p.Main().Parameters[i].Origin
		args = append(args, placed)
	}
	if len(args) != len(sig.Arguments) || len(p.Outputs) != len(sig.Results) {
		return nil, nil, fault(fmt.Sprintf("step %q", p.Name), fmt.Sprintf("it has %d arguments and %d results, its signature %d and %d",
			len(args), len(p.Outputs), len(sig.Arguments), len(sig.Results)), "give the signature an entry for each")
	}
	for i, shape := range p.Outputs {
		placed, err := w.place("result", sig.Results[i], sig.Steps, shape.DType, shape.Dimensions)
		if err != nil {
			return nil, nil, err
		}
		results = append(results, placed)
	}
	return args, results, nil
}

// function rewrites a function that the step calls.
func (w *writer) function(f *ir.Function) (*ir.Function, error) {
	written := *f
	written.Private = true
	var err error
	if written.Body, err = w.replaced(f.Body...); err != nil {
		return nil, err
	}
	return &written, nil
}

// step rewrites the step function.
func (w *writer) step(p *lowering.Program, m *Module) (*ir.Function, error) {
	traced, at, err := w.outline(p.Main(), w.trace.passes)
	if err != nil {
		return nil, err
	}
	f := &ir.Function{Name: stepName, Private: true, Form: ir.Short}
	for _, v := range w.own {
		f.Parameters = append(f.Parameters, ir.Parameter{Value: v.Value})
	}
	for _, r := range traced.Results {
		f.Results = append(f.Results, ir.Result{Type: r.Type})
	}
	// With one logical device, the statements of regions stay in the step.
	var regions []deviceRegion
	if w.logicalDevices > 1 {
		regions = regionsOf(w.trace.regions, at)
	}
	fl := newFlow(traced, regions)
	w.flow = fl
	if w.logicalDevices > 1 {
		regions = w.locate(fl, p, m.Arguments).schedule(regions)
	}
	w.alias = fl.alias
	borders := fl.borders(regions)
	for _, b := range borders {
		for _, v := range b.lent {
			again, err := w.repeat(v)
			if err != nil {
				return nil, err
			}
			w.body = append(w.body, again...)
		}
	}
	unread := fl.unread(w.parts)
	for _, unit := range fl.order(regions) {
		// A region without statements has no position.
		if unit >= 0 {
			if err := w.region(fl, unit, regions[unit], borders[unit]); err != nil {
				return nil, err
			}
			continue
		}
		s := fl.statements[^unit]
		if ^unit == len(fl.statements)-1 {
			w.giveBack(s, m.Results)
			continue
		}
		if len(s.Results) == 1 && fl.alias[s.Results[0]] != nil || unread[^unit] {
			continue
		}
		written, err := w.replaced(s)
		if err != nil {
			return nil, err
		}
		w.body = append(w.body, written...)
	}
	f.Body = append(w.gathers(), w.body...)
	return f, nil
}

// giveBack writes the step's return. A split result is constrained here: the compiler aborts the
// process when it has to reshard a value at the border of the manual computation.
func (w *writer) giveBack(s *ir.Statement, results []ShardedTensor) {
	all := make([]*ir.Value, len(s.Operands))
	for i, v := range s.Operands {
		all[i] = w.canonical(v)
		if r := results[i]; r.Annotation.Kind() == logical.KindSplit && !w.single() {
			split := named(fmt.Sprintf("split_result_%d", i), v.Type)
			w.body = append(w.body, w.constrain(split, all[i], r.Annotation))
			all[i] = split
		}
	}
	w.body = append(w.body, give("return", all))
}

// manual returns the shape of a tensor inside the computation that is manual over the replicas: the
// global shape divided by the replica axis.
func (w *writer) manual(p ShardedTensor) []int {
	dims := slices.Clone(p.Global)
	if p.PerReplica {
		at := 0
		if p.PerStep {
			at = 1
		}
		dims[at] /= w.replicas
	}
	if p.Over.Is() {
		dims[p.Over.Dim] /= w.replicas
	}
	return dims
}
