package loop

import (
	"fmt"
	"slices"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/ml/model"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/internal/modelfields"
	"github.com/tpustrategy/tpustrategy/internal/region"
)

// stack is a variable in the model's store that contains the values of one variable for all layers,
// along dimension 0.
type stack struct {
	path     string
	shape    shapes.Shape    // shape in a layer
	variable *model.Variable // stacked variable
	nodes    []*graph.Node   // nodes whose slices a layer receives
	layer    func(slices []*graph.Node) *graph.Node
}

// addStacks creates the stacked variables whose absence made the loop abandon a trace. A stacked
// variable contains the values of one variable for all layers.
func (r *layerLoop) addStacks(l *layer) {
	l.checkVariables()
	if l.foundWrites {
		return
	}
	if r.hasNoScope {
		r.fail("", "the block makes variables or draws random numbers, and the loop has no scope",
			"pass the scope of the layers' variables, such as rc.Scope(\"layers\")")
	}
	found := false
	if l.store.GetVariable(rngPath) != nil && r.random == nil {
		r.random, found = r.newGenerators(), true
	}
	for v := range l.store.IterVariables() {
		if v.Path() != rngPath && !r.hasStack(v.Path()) {
			r.stacks = append(r.stacks, r.newStack(v))
			found = true
		}
	}
	if !found {
		r.failWithKind(errkind.InternalError, "", "a trace was abandoned without a new variable",
			"report this as a defect of tpustrategy")
	}
}

func (r *layerLoop) hasStack(path string) bool {
	return slices.ContainsFunc(r.stacks, func(s *stack) bool { return s.path == path })
}

// checkVariables panics unless the layer created the same variables as in earlier traces.
func (l *layer) checkVariables() {
	for _, s := range l.stacks {
		v := l.store.GetVariable(s.path)
		switch {
		case v == nil:
			l.fail(fmt.Sprintf("variable %q", s.path),
				"the block created it in the first trace, but not in a later trace",
				"create the same variables in each trace, with names that do not depend on a counter")
		case !v.Shape().Equal(s.shape):
			l.fail(fmt.Sprintf("variable %q", s.path),
				fmt.Sprintf("the block created it with %s in the first trace, but with %s in a later trace", s.shape,
					v.Shape()),
				"create the same variables in each trace")
		}
	}
}

// createUnreadVariables creates stacked variables for the variables that the layer created without
// reading them. It also copies the parameters that the layer set into the model's store.
func (l *layer) createUnreadVariables() {
	store := l.scope.Store()
	for v := range l.store.IterVariables() {
		if v.Path() == rngPath {
			continue
		}
		if !l.hasStack(v.Path()) {
			l.stackedVariable(v)
		}
		if !v.Trainable {
			store.GetVariable(v.Path()).SetTrainable(false)
		}
	}
	for path, value := range l.store.IterParams() {
		if old, ok := store.GetParam(path); !ok || !equalParams(old, value) {
			store.SetParam(path, value)
		}
	}
}

func (r *layerLoop) newStack(v *model.Variable) *stack {
	s := &stack{path: v.Path(), shape: v.Shape(), variable: r.stackedVariable(v)}
	if slicing, ok := r.graph.State(slicerKey{}).(Slicer); ok && r.depth == 0 {
		s.nodes, s.layer = slicing(s.variable)
	}
	node := s.variable.NodeValue(r.graph) // marks the variable as used by the graph
	if s.nodes == nil {
		s.nodes = []*graph.Node{node}
	}
	return s
}

// stackedVariable returns the stacked variable for variable v of a layer, and creates it in the
// store if necessary.
func (r *layerLoop) stackedVariable(v *model.Variable) *model.Variable {
	store, shape := r.scope.Store(), shapes.Make(v.DType(), append([]int{r.n}, v.Shape().Dimensions...)...)
	if old := store.GetVariable(v.Path()); old != nil {
		if !old.Shape().Equal(shape) {
			r.fail(fmt.Sprintf("variable %q", v.Path()),
				fmt.Sprintf("the store has it as %s, and %d layers of %s are %s", old.Shape(), r.n, v.Shape(), shape),
				"use a different scope for each loop, and do not change its number of layers")
		}
		return old
	}
	if ofLayer := r.depth > 0 && store == model.GetStore(r.graph); !v.HasValue() && !ofLayer {
		rngVariable(store) // the initializer may draw from it
	}
	return store.VariableWithShape(v.Path(), shape, r.stackInitializer(v)).SetTrainable(v.Trainable)
}

// stackInitializer returns an initializer for a stacked variable, which calls the initializer of v
// once for each layer.
func (r *layerLoop) stackInitializer(v *model.Variable) model.VariableInitializer {
	n, one, of := r.n, modelfields.Initializer(v), v.Shape()
	if v.HasValue() {
		value, err := v.Value()
		if err == nil {
			value, err = value.LocalClone()
		}
		if err != nil {
			panic(&errkind.Fault{Op: "loop:", Subject: fmt.Sprintf("variable %q", v.Path()),
				Reason: "its value cannot be read", Err: err})
		}
		one = func(g *graph.Graph, of shapes.Shape) *graph.Node {
			return graph.ConvertDType(graph.ConstCachedTensor(g, value), of.DType)
		}
	}
	if one == nil {
		r.fail(fmt.Sprintf("variable %q", v.Path()), "it has neither a value nor an initializer", "make it with one")
	}
	return func(g *graph.Graph, stack shapes.Shape) *graph.Node {
		of := of
		of.DType = stack.DType // a policy of package precision keeps it in another dtype than the layer's
		return stackInitialValues(g, n, of, one)
	}
}

// stackInitialValues calls an initializer n times and stacks the results. If the initializer draws
// random numbers and the backend supports loops, the calls are a loop in the graph. The size of the
// graph then does not depend on n.
func stackInitialValues(g *graph.Graph, n int, layerShape shapes.Shape,
	initializer model.VariableInitializer) *graph.Node {
	_, before := rngState(g)
	first := initializer(g, layerShape)
	random, after := rngState(g)
	if random == nil || before == after {
		return graph.BroadcastPrefix(first, n)
	}
	if before == nil {
		before = g.GetParameterByName(rngPath)
	}
	target, ok := g.Backend().(region.Target)
	if !ok || before == nil {
		all := []*graph.Node{first}
		for range n - 1 {
			all = append(all, initializer(g, layerShape))
		}
		return graph.Stack(all, 0)
	}
	out := region.Trace(target, region.Loop{N: n}, []region.Argument{{Node: before, Mapping: region.Carry{},
		Name: "random numbers"}},
		func(in []*graph.Node) []region.Result {
			random.SetNodeValue(in[0])
			value := initializer(g, layerShape)
			return []region.Result{{Node: random.NodeValue(g), Mapping: region.Carry{}},
				{Node: value, Mapping: region.Slice{N: n}}}
		})
	random.SetNodeValue(out[0])
	return out[1]
}

// rngState returns the variable of the graph's store that contains the random state, and the graph
// node of this variable. Each result is nil if it does not exist.
func rngState(g *graph.Graph) (v *model.Variable, state *graph.Node) {
	store := model.GetStore(g)
	if store == nil {
		return nil, nil
	}
	if v = store.GetVariable(rngPath); v != nil && v.InUseByGraph(g) {
		state = v.NodeValue(g)
	}
	return v, state
}

var rngPath = model.JoinPath("/", model.RNGStateVariableName)

type generators struct {
	variable *model.Variable // of the store
	states   *graph.Node
}

// rngVariable returns the variable of a store that contains the random state. It creates the
// variable if necessary.
func rngVariable(store *model.Store) *model.Variable {
	if v := store.GetVariable(rngPath); v != nil && v.HasValue() {
		return v
	}
	if err := store.ResetRNGState(); err != nil {
		panic(&errkind.Fault{Op: "loop:", Subject: "random numbers", Err: err})
	}
	return store.GetVariable(rngPath)
}

// newGenerators creates one random state per layer from a new seed. The states differ in the first
// word, the key of the Philox generator, so the layers draw different numbers.
func (r *layerLoop) newGenerators() *generators {
	v := rngVariable(r.scope.Store())
	next, seed := graph.RNGStateSplit(v.NodeValue(r.graph))
	v.SetNodeValue(next)
	words := seed.Shape().Dimensions[0]
	keys := make([]uint64, words)
	keys[0] = 1
	numbers := graph.Iota(r.graph, shapes.Make(dtypes.Uint64, r.n, words), 0)
	states := graph.Add(graph.BroadcastPrefix(seed, r.n), graph.Mul(numbers,
		graph.BroadcastPrefix(graph.Const(r.graph, keys), r.n)))
	return &generators{variable: v, states: states}
}

// A Slicer specifies how loops pass the stacked variable v to their layers. Each layer receives
// slices of the nodes in stacks, and computes its value of v by calling layer with these slices.
// The call is part of the loop and is differentiated like its other ops. If stacks is nil, the
// layers receive slices of v itself.
type Slicer func(v *model.Variable) (stacks []*graph.Node, layer func(slices []*graph.Node) *graph.Node)

type slicerKey struct{}

// SetSlicer sets the Slicer of a graph. Packages use it for variables that are stored in shards, or
// in another dtype than the layers read. Loops inside other loops ignore it.
func SetSlicer(g *graph.Graph, s Slicer) { g.AttachState(slicerKey{}, s) }

type scopeMarkerKey struct{}

// SetScopeMarker sets the function mark, which each loop calls before it traces its layers. mark
// records which scopes are in use. If the loop abandons a trace, it calls rewind, which marks the
// scopes that the trace has used as unused.
func SetScopeMarker(g *graph.Graph, mark func() (rewind func())) {
	g.AttachState(scopeMarkerKey{}, mark)
}
