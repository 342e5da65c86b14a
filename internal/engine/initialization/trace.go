package initialization

import (
	"github.com/gomlx/compute"
	"github.com/gomlx/compute/gobackend"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/core/tensors"
	"github.com/gomlx/gomlx/ml/model"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/internal/engine/fault"
	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/lowering"
	"github.com/tpustrategy/tpustrategy/lowering/spmd"
)

// initializer is a variable's initializer, lowered to a program for devices. A random initializer
// has the random number state as its argument and returns the state after it as its second result.
type initializer struct {
	module   *spmd.Module
	devices  computeDevices
	isRandom bool
}

// ErrNotForDevices matches the error of an initializer that cannot run on devices, because its
// value depends on other variables or is too large for a program.
var ErrNotForDevices = errkind.New(errkind.NotImplementedError,
	"the initializer reads or writes other variables, or has its value in its text")

// trace lowers the initializer of a variable for the devices that compute the value. Two variables
// with the same shape, sharding and kind of initializer have the same program text.
func (o Options) trace(init model.VariableInitializer, v Variable) (t *initializer, err error) {
	l := v.Layout
	by, annotation, axes := o.selectDevices(l), v.Annotation, o.Axes
	if !l.IsSplitWithinGroup() {
		annotation = logical.Annotation{} // the logical devices have the same value
	}
	if l.IsReplicated() {
		axes = nil // there is one logical device
	}
	trace := spmd.NewTrace(spmd.Options{
		Replicas: by.replicas, LogicalDevices: by.logicalDevices, LogicalAxes: axes, AllowReplicaProgram: true,
		Target: o.Target, Precision: o.Precision, Random: lowering.RandomPCG,
	})
	g, outputs, err := buildGraph(trace, o.Store, []model.VariableInitializer{init}, []shapes.Shape{v.Shape})
	if err != nil {
		return nil, err
	}
	if g.writes && g.state == nil {
		return nil, ErrNotForDevices
	}
	if v.Over.IsSharded() {
		outputs[0] = spmd.SliceShard(outputs[0], v.Over)
	}
	sig := spmd.Signature{Results: []spmd.Tensor{{Name: "value", ReplicaShard: v.Over, Annotation: annotation}}}
	if g.state != nil {
		sig.Results = append(sig.Results, spmd.Tensor{Name: "random_state"})
	}
	for h := range g.NumParameters() {
		if g.parameterName(h) != StatePath {
			return nil, ErrNotForDevices
		}
		sig.Arguments = append(sig.Arguments, spmd.Tensor{Name: StatePath})
	}
	if len(sig.Arguments) != len(sig.Results)-1 { // the initializer only reads or only writes the state
		return nil, ErrNotForDevices
	}
	if err := g.Compile(outputs...); err != nil {
		return nil, err
	}
	m, err := trace.Module(g.Graph, sig)
	if err != nil {
		return nil, err
	}
	if len(m.Text) > maxProgramText {
		return nil, ErrNotForDevices
	}
	return &initializer{module: m, devices: by, isRandom: g.state != nil}, nil
}

// StatePath is the path of the variable with a store's random number state.
var StatePath = model.JoinPath("/", model.RNGStateVariableName)

type valueGraph struct {
	*graph.Graph
	state  *graph.Node // final random number state, or nil if no initializer is random
	writes bool        // an initializer writes a variable
}

// parameterName returns the path of the variable that the graph's parameter h reads.
func (g *valueGraph) parameterName(h int) string {
	return g.GetParameterByHandle(graph.ParameterHandle(h)).GetParameterName()
}

// buildGraph builds a graph that evaluates the initializers in order. The outputs are the values
// and, if an initializer is random, the final random number state.
func buildGraph(b compute.Backend, store *model.Store, inits []model.VariableInitializer,
	of []shapes.Shape) (g *valueGraph, outputs []*graph.Node, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fault.Wrap("the initializer", fault.FromPanic(r), "")
		}
	}()
	g = &valueGraph{Graph: graph.NewGraph(b, "first_value")}
	model.SetStore(g.Graph, store)
	for i, init := range inits {
		value := init(g.Graph, of[i])
		switch {
		case value == nil || value.Graph() != g.Graph:
			return nil, nil, fault.New(errkind.ValueError, "the initializer",
				"return a node of the graph that it is given", "it gave no node of its graph")
		case !value.Shape().Equal(of[i]):
			return nil, nil, fault.New(errkind.ValueError, "the initializer", "return a value of the shape that it is given",
				"it gave a value of shape %s for a variable of shape %s", value.Shape(), of[i])
		}
		outputs = append(outputs, value)
	}
	for v := range store.IterVariables() {
		if !v.ChangedInGraph(g.Graph) {
			continue
		}
		g.writes = true
		if v.Path() != StatePath {
			return nil, nil, fault.New(errkind.ValueError, "the initializer", "write it in a step",
				"it writes variable %q", v.Path())
		}
		g.state = v.NodeValue(g.Graph)
		outputs = append(outputs, g.state)
	}
	return g, outputs, nil
}

// computeOnHost computes the values of initializers on the host. If an initializer is random,
// computeOnHost calls state, which returns the random number state. next is then the random number
// state after all initializers, and otherwise nil.
func computeOnHost(store *model.Store, inits []model.VariableInitializer, of []shapes.Shape,
	state func() (*tensors.Tensor, error)) (values []*tensors.Tensor, next *tensors.Tensor, err error) {
	host, err := gobackend.New("")
	if err != nil {
		return nil, nil, err
	}
	defer host.Finalize()
	g, outputs, err := buildGraph(host, store, inits, of)
	if err != nil {
		return nil, nil, err
	}
	defer g.Finalize()
	if err := g.Compile(outputs...); err != nil {
		return nil, nil, err
	}
	in := make([]any, g.NumParameters())
	for h := range in {
		if name := g.parameterName(h); name == StatePath {
			in[h], err = state()
		} else {
			in[h], err = readVariable(store, name)
		}
		if err != nil {
			return nil, nil, err
		}
	}
	defer func() {
		if r := recover(); r != nil {
			err = fault.New(errkind.ValueError, "computing the value", "", "%v", r)
		}
	}()
	values = g.Run(in...)
	for _, v := range values { // the backend is finalized on return
		if err := v.ToLocal(); err != nil {
			return nil, nil, err
		}
	}
	if g.state != nil {
		return values[:len(of)], values[len(of)], nil
	}
	return values, nil, nil
}

// readVariable returns a copy of the value of a store's variable that an initializer reads.
func readVariable(store *model.Store, path string) (*tensors.Tensor, error) {
	v := store.GetVariable(path)
	if v == nil || !v.HasValue() {
		return nil, fault.New(errkind.ValueError, "the initializer", "give that variable a value first",
			"it reads variable %q, which has no value yet", path)
	}
	value, err := v.Value()
	if err != nil {
		return nil, err
	}
	return value.LocalClone()
}
