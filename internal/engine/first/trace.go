package first

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

// initializer is an initializer as a program for the devices: it takes the state of random
// numbers and gives the state after it, if it draws some.
type initializer struct {
	module *spmd.Module
	makers makers
	draws  bool
}

// ErrNotForDevices is an initializer that depends on more than the random numbers.
var ErrNotForDevices = errkind.New(errkind.NotImplementedError,
	"the initializer reads or writes other variables, or has its value in its text")

// trace lowers a variable's initializer for the devices that make its value.
// Initializers of the same kind give the same text.
func (o Options) trace(init model.VariableInitializer, v Variable) (t *initializer, err error) {
	l := v.Layout
	by, annotation, axes := o.makersOf(l), v.Annotation, o.Axes
	if !l.IsSplitWithinGroup() {
		annotation = logical.Annotation{} // the logical devices have the same
	}
	if l.IsReplicated() {
		axes = nil // there is one logical device
	}
	trace := spmd.NewTrace(spmd.Options{
		Replicas: by.replicas, LogicalDevices: by.logicalDevices, LogicalAxes: axes, AllowReplicaProgram: true,
		Target: o.Target, Precision: o.Precision, Random: lowering.RandomPCG,
	})
	g, outputs, err := initializerGraph(trace, o.Store, []model.VariableInitializer{init}, []shapes.Shape{v.Shape})
	if err != nil {
		return nil, err
	}
	if g.changed && g.state == nil {
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
		if g.parameter(h) != StatePath {
			return nil, ErrNotForDevices
		}
		sig.Arguments = append(sig.Arguments, spmd.Tensor{Name: StatePath})
	}
	if len(sig.Arguments) != len(sig.Results)-1 { // a state that is read only, or written only
		return nil, ErrNotForDevices
	}
	if err := g.Compile(outputs...); err != nil {
		return nil, err
	}
	m, err := trace.Module(g.Graph, sig)
	if err != nil {
		return nil, err
	}
	if len(m.Text) > longestInitializer {
		return nil, ErrNotForDevices
	}
	return &initializer{module: m, makers: by, draws: g.state != nil}, nil
}

// StatePath is the variable that holds the state of a store's random numbers.
var StatePath = model.JoinPath("/", model.RNGStateVariableName)

type graphOfValues struct {
	*graph.Graph
	state   *graph.Node // final state of the random number generator
	changed bool        // some variable is
}

// parameter is the path of the variable that a parameter stands for.
func (g *graphOfValues) parameter(h int) string {
	return g.GetParameterByHandle(graph.ParameterHandle(h)).GetParameterName()
}

// initializerGraph builds a graph that evaluates the initializers in their order. The outputs are the
// values and, if an initializer is random, the final state of the random number generator.
func initializerGraph(b compute.Backend, store *model.Store, inits []model.VariableInitializer,
	of []shapes.Shape) (g *graphOfValues, outputs []*graph.Node, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fault.Of("the initializer", fault.Cause(r), "")
		}
	}()
	// The name is the module's, and the same for all.
	g = &graphOfValues{Graph: graph.NewGraph(b, "first_value")}
	model.SetStore(g.Graph, store)
	for i, init := range inits {
		value := init(g.Graph, of[i])
		switch {
		case value == nil || value.Graph() != g.Graph:
			return nil, nil, fault.New(errkind.ValueError, "the initializer",
				"return a node of the graph that it is given", "it gave no node of its graph")
		case !value.Shape().Equal(of[i]):
			return nil, nil, fault.New(errkind.ValueError, "the initializer", "return a value of the shape that it is given", "it gave a value of shape %s for a variable of shape %s", value.Shape(), of[i])
		}
		outputs = append(outputs, value)
	}
	for v := range store.IterVariables() {
		if !v.ChangedInGraph(g.Graph) {
			continue
		}
		g.changed = true
		if v.Path() != StatePath {
			return nil, nil, fault.New(errkind.ValueError, "the initializer", "write it in a step",
				"it writes variable %q", v.Path())
		}
		g.state = v.NodeValue(g.Graph)
		outputs = append(outputs, g.state)
	}
	return g, outputs, nil
}

// valuesOnHost computes what initializers make of some shapes on the host. state is asked for the
// state of random numbers, if some are drawn; next is the one after them.
func valuesOnHost(store *model.Store, inits []model.VariableInitializer, of []shapes.Shape,
	state func() (*tensors.Tensor, error)) (values []*tensors.Tensor, next *tensors.Tensor, err error) {
	host, err := gobackend.New("")
	if err != nil {
		return nil, nil, err
	}
	defer host.Finalize()
	g, outputs, err := initializerGraph(host, store, inits, of)
	if err != nil {
		return nil, nil, err
	}
	defer g.Finalize()
	if err := g.Compile(outputs...); err != nil {
		return nil, nil, err
	}
	in := make([]any, g.NumParameters())
	for h := range in {
		if name := g.parameter(h); name == StatePath {
			in[h], err = state()
		} else {
			in[h], err = valueForHost(store, name)
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
	for _, v := range values { // the backend ends here
		if err := v.ToLocal(); err != nil {
			return nil, nil, err
		}
	}
	if g.state != nil {
		return values[:len(of)], values[len(of)], nil
	}
	return values, nil, nil
}

// valueForHost is a copy of a store's variable that an initializer reads.
func valueForHost(store *model.Store, path string) (*tensors.Tensor, error) {
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
