package loop

import (
	"fmt"
	"slices"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/ml/model"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/internal/initial"
	"github.com/tpustrategy/tpustrategy/internal/region"
)

// stack is a variable of the layers: one tensor of all, in the store.
type stack struct {
	path     string
	shape    shapes.Shape    // a layer's
	variable *model.Variable // the stack
	nodes    []*graph.Node   // that layers get slices of
	layer    func(slices []*graph.Node) *graph.Node
}

// learn makes stacks of the variables of a trace that have none.
func (r *run) learn(l *layer) {
	l.compare()
	if l.learned {
		return
	}
	if r.bare {
		r.fail("", "the block makes variables or draws random numbers, and the loop has no scope", "pass the scope of the layers' variables, such as rc.Scope(\"layers\")")
	}
	found := false
	if l.store.GetVariable(randomPath) != nil && r.random == nil {
		r.random, found = r.newGenerators(), true
	}
	for v := range l.store.IterVariables() {
		if v.Path() != randomPath && !r.stacked(v.Path()) {
			r.stacks = append(r.stacks, r.newStack(v))
			found = true
		}
	}
	if !found {
		r.failOf(errkind.InternalError, "", "a trace was given up for no variable", "report this as a fault of tpustrategy")
	}
}

func (r *run) stacked(path string) bool {
	return slices.ContainsFunc(r.stacks, func(s *stack) bool { return s.path == path })
}

// compare checks that the block made the variables that it made before.
func (l *layer) compare() {
	for _, s := range l.stacks {
		v := l.store.GetVariable(s.path)
		switch {
		case v == nil:
			l.fail(fmt.Sprintf("variable %q", s.path), "the block made it when it was traced first, and does not when it is traced again",
				"make the same variables each time: name them by what they are, not by counting")
		case !v.Shape().Equal(s.shape):
			l.fail(fmt.Sprintf("variable %q", s.path), fmt.Sprintf("the block made it as %s first, and as %s when it is traced again", s.shape, v.Shape()),
				"make the same variables each time")
		}
	}
}

// settle makes stacks of variables that the block made and did not read, and hands on what it set.
func (l *layer) settle() {
	store := l.scope.Store()
	for v := range l.store.IterVariables() {
		if v.Path() == randomPath {
			continue
		}
		if !l.stacked(v.Path()) {
			l.newVariable(v)
		}
		if !v.Trainable {
			store.GetVariable(v.Path()).SetTrainable(false)
		}
	}
	for path, value := range l.store.IterParams() {
		if old, ok := store.GetParam(path); !ok || !same(old, value) {
			store.SetParam(path, value)
		}
	}
}

// newStack makes the stack of a layer's variable and gives it to the graph.
func (r *run) newStack(v *model.Variable) *stack {
	s := &stack{path: v.Path(), shape: v.Shape(), variable: r.newVariable(v)}
	if slicing, ok := r.graph.State(slicingKey{}).(Slicer); ok && r.depth == 0 {
		s.nodes, s.layer = slicing(s.variable)
	}
	whole := s.variable.NodeValue(r.graph) // so that the graph uses it
	if s.nodes == nil {
		s.nodes = []*graph.Node{whole}
	}
	return s
}

// newVariable makes the stack of a layer's variable in the store, if it is not there.
func (r *run) newVariable(v *model.Variable) *model.Variable {
	store, shape := r.scope.Store(), shapes.Make(v.DType(), append([]int{r.n}, v.Shape().Dimensions...)...)
	if old := store.GetVariable(v.Path()); old != nil {
		if !old.Shape().Equal(shape) {
			r.fail(fmt.Sprintf("variable %q", v.Path()), fmt.Sprintf("the store has it as %s, and %d layers of %s are %s", old.Shape(), r.n, v.Shape(), shape),
				"give the loop a scope of its own, and keep its number of layers")
		}
		return old
	}
	if ofLayer := r.depth > 0 && store == model.GetStore(r.graph); !v.HasValue() && !ofLayer {
		generator(store) // the initializer may draw from it
	}
	return store.VariableWithShape(v.Path(), shape, r.firstValues(v)).SetTrainable(v.Trainable)
}

// firstValues makes the first values of a stack: each layer's as if it were alone, one drawn after
// the other.
func (r *run) firstValues(v *model.Variable) model.VariableInitializer {
	n, one, of := r.n, initial.Of(v), v.Shape()
	if v.HasValue() {
		value, err := v.Value()
		if err == nil {
			value, err = value.LocalClone()
		}
		if err != nil {
			panic(&errkind.Fault{Op: "loop:", Subject: fmt.Sprintf("variable %q", v.Path()), Reason: "its value cannot be read", Err: err})
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
		return repeat(g, n, of, one)
	}
}

// repeat stacks n values of an initializer. Where it draws random numbers they are drawn in a loop,
// if the backend has loops: the text does not grow with n.
func repeat(g *graph.Graph, n int, of shapes.Shape, one model.VariableInitializer) *graph.Node {
	_, before := stateOf(g)
	first := one(g, of)
	random, after := stateOf(g)
	if random == nil || before == after {
		return graph.BroadcastPrefix(first, n)
	}
	if before == nil {
		before = g.GetParameterByName(randomPath)
	}
	target, ok := g.Backend().(region.Target)
	if !ok || before == nil {
		all := []*graph.Node{first}
		for range n - 1 {
			all = append(all, one(g, of))
		}
		return graph.Stack(all, 0)
	}
	out := region.Trace(target, region.Loop{N: n}, []region.Argument{{Node: before, Crossing: region.Carry{}, Name: "random numbers"}},
		func(in []*graph.Node) []region.Result {
			random.SetNodeValue(in[0])
			value := one(g, of)
			return []region.Result{{Node: random.NodeValue(g), Crossing: region.Carry{}}, {Node: value, Crossing: region.Slice{N: n}}}
		})
	random.SetNodeValue(out[0])
	return out[1]
}

// stateOf returns the variable of a graph's random numbers and its node, nil where there is none.
func stateOf(g *graph.Graph) (v *model.Variable, state *graph.Node) {
	store := model.GetStore(g)
	if store == nil {
		return nil, nil
	}
	if v = store.GetVariable(randomPath); v != nil && v.InUseByGraph(g) {
		state = v.NodeValue(g)
	}
	return v, state
}

// randomPath is the variable that holds the state of a store's random numbers.
var randomPath = model.JoinPath("/", model.RNGStateVariableName)

// generators are the layers' states of random numbers.
type generators struct {
	variable *model.Variable // of the store
	states   *graph.Node
}

// generator is the variable of a store's random numbers. It is made if it is not there.
func generator(store *model.Store) *model.Variable {
	if v := store.GetVariable(randomPath); v != nil && v.HasValue() {
		return v
	}
	if err := store.ResetRNGState(); err != nil {
		panic(&errkind.Fault{Op: "loop:", Subject: "random numbers", Err: err})
	}
	return store.GetVariable(randomPath)
}

// newGenerators draws the seed of the layers' generators. Other first words are other keys of
// Philox, and other streams.
func (r *run) newGenerators() *generators {
	v := generator(r.scope.Store())
	next, seed := graph.RNGStateSplit(v.NodeValue(r.graph))
	v.SetNodeValue(next)
	words := seed.Shape().Dimensions[0]
	keys := make([]uint64, words)
	keys[0] = 1
	numbers := graph.Iota(r.graph, shapes.Make(dtypes.Uint64, r.n, words), 0)
	states := graph.Add(graph.BroadcastPrefix(seed, r.n), graph.Mul(numbers, graph.BroadcastPrefix(graph.Const(r.graph, keys), r.n)))
	return &generators{variable: v, states: states}
}

// Slicer says how a stacked variable enters the loops of a graph: the nodes that layers get slices
// of, and what makes a layer's value of its slices. No nodes stand for the variable's own, whose
// slice is the value. layer is called inside of the loop; what it makes has a gradient as all ops
// there have.
type Slicer func(v *model.Variable) (stacks []*graph.Node, layer func(slices []*graph.Node) *graph.Node)

type slicingKey struct{}

// SetSlicer sets how stacked variables enter the loops of a graph. It is for packages that keep
// variables otherwise than the layers read them: as shards, or in another dtype. Loops inside of
// loops get what the outermost makes.
func SetSlicer(g *graph.Graph, s Slicer) { g.AttachState(slicingKey{}, s) }

type scopesKey struct{}

// SetScopes sets a function that loops call before each trace of their block. Loops call rewind when they
// give up the trace, so that the next trace may use the same scopes of the step.
func SetScopes(g *graph.Graph, mark func() (rewind func())) { g.AttachState(scopesKey{}, mark) }
