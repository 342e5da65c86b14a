package loop

import (
	"fmt"
	"reflect"
	"strings"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/ml/model"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/internal/region"
)

// layerLoop is the state of one call of Run. The model's store has one stacked variable for each
// variable of a layer. The user's function, which builds a layer, is traced with another store. The
// variables of this store have the same paths but the shapes of one layer, and their graph nodes
// are slices of the stacked variables. The variables of a layer are only known after the function
// has run. Therefore, if a trace requests a variable without a stacked variable, the loop abandons
// the trace, creates the stacked variable, and traces the function again.
type layerLoop struct {
	scope     *model.Scope
	n         int
	arguments Arguments
	block     func(layer *Layer) Results
	opts      Options

	graph  *graph.Graph
	target region.Target
	index  *graph.Node // indices of the layers
	stacks []*stack    // in the order of the requests
	random *generators // nil if the block draws no random numbers
	// state finds the node of the random state, which has the same path in every store.
	state      *model.Variable
	losses     []*lossSum
	written    []region.StepVariable // variables of the step that the block writes
	params     map[string]any        // parameters of the graph before the loop
	depth      int                   // number of enclosing loops
	hasNoScope bool                  // Run was called without a scope
	// abandoned is true if the trace was abandoned.
	abandoned bool
}

// maxLayers is the maximum number of layers. It limits the memory for the indices and initial
// values of the layers.
const maxLayers = 1 << 16

// layerLoopKey is the key of the graph state that contains the innermost loop being traced.
type layerLoopKey struct{}

func newLayerLoop(scope *model.Scope, n int, arguments Arguments, block func(layer *Layer) Results,
	opts Options) *layerLoop {
	r := &layerLoop{scope: scope, n: n, arguments: arguments, block: block, opts: opts}
	if scope == nil {
		r.scope, r.hasNoScope = model.NewStore().RootScope(), true
	}
	switch {
	case n < 1:
		r.fail("", fmt.Sprintf("the number of layers is %d", n), "use at least one layer")
	case n > maxLayers:
		r.fail("", fmt.Sprintf("the number of layers is %d", n), fmt.Sprintf("use at most %d", maxLayers))
	case block == nil:
		r.fail("", "the block is nil", "pass the function that builds a layer")
	case len(arguments.Carried) == 0:
		r.fail("", "nothing is carried from layer to layer", "set Arguments.Carried to the input of the first layer")
	}
	for _, list := range r.argumentLists() {
		for i, x := range list.nodes {
			if x == nil {
				r.fail(fmt.Sprintf("%s argument %d", list.role, i), "it is nil", "pass a node of the step")
			}
		}
	}
	r.graph = arguments.Carried[0].Graph()
	target, ok := r.graph.Backend().(region.Target)
	if !ok {
		r.fail("", fmt.Sprintf("a graph of backend %q has no loops over layers", r.graph.Backend().Name()),
			"trace the step through a strategy")
	}
	r.target = target
	if around, ok := r.graph.State(layerLoopKey{}).(*layerLoop); ok && around != nil {
		r.depth = around.depth + 1
	}
	r.state = rngVariable(model.NewStore())
	r.params = graphParams(r.scope.Store(), r.graph)
	r.losses = newLossSums(r.graph)
	r.index = graph.Iota(r.graph, shapes.Make(dtypes.Int32, n), 0)
	return r
}

type argumentList struct {
	role    string
	mapping region.Mapping
	nodes   []*graph.Node
}

func (r *layerLoop) argumentLists() []argumentList {
	return []argumentList{{"carried", region.Carry{}, r.arguments.Carried},
		{"same", region.Identity{}, r.arguments.Shared},
		{"sliced", region.Slice{N: r.n}, r.arguments.Sliced}}
}

func (r *layerLoop) fail(subject, reason, hint string) {
	r.failWithKind(errkind.ValueError, subject, reason, hint)
}

func (r *layerLoop) failWithKind(kind errkind.Kind, subject, reason, hint string) {
	op := "loop"
	if subject != "" {
		op = "loop:"
	}
	panic(&errkind.Fault{Op: op, Subject: subject, Reason: reason, Hint: hint, Class: kind})
}

// tryTrace traces a layer once. It returns false if the trace was abandoned because the layer
// requested a variable for which no stacked variable exists yet.
func (r *layerLoop) tryTrace() (results Results, ok bool) {
	layer := r.newLayer()
	all := r.trace(layer)
	if r.abandoned {
		return Results{}, false
	}
	take := func(n int) (list []*graph.Node) {
		list, all = all[:n:n], all[n:]
		return list
	}
	results = Results{Carried: take(len(layer.results.Carried)), Stacked: take(len(layer.results.Stacked)),
		Summed: take(len(layer.results.Summed))}
	for _, s := range layer.changed {
		s.variable.SetNodeValue(take(1)[0])
	}
	for _, l := range layer.changedLosses {
		l.addTotal(take(1)[0])
	}
	for _, h := range r.written {
		h.SetValue(take(1)[0])
	}
	layer.createUnreadVariables()
	r.markScopesUsed()
	return results, true
}

// markScopesUsed marks the scopes of the stacked variables as used, as [model.Scope.In] does. GoMLX
// then rejects another layer or loop in the same scope.
func (r *layerLoop) markScopesUsed() {
	seen := map[string]bool{}
	for _, s := range r.stacks {
		rest := strings.TrimPrefix(strings.TrimPrefix(s.path, r.scope.Scope()), model.ScopeSeparator)
		if inner, _, nested := strings.Cut(rest, model.ScopeSeparator); nested && !seen[inner] {
			seen[inner] = true
			r.scope.In("%s", inner)
		}
	}
}

// trace traces the layers as a loop and returns the results of the loop. It sets r.abandoned if the
// trace was abandoned because a stacked variable is missing.
func (r *layerLoop) trace(l *layer) (all []*graph.Node) {
	r.abandoned = false
	done := r.target.InterceptParameters(l.checkParameter)
	defer func() {
		done()
		l.restoreGraph()
		if r.abandoned || l.needsRetrace() {
			r.abandoned = true
			_ = recover() // ignore errors that follow from the missing variable
			l.rewindScopes()
			r.addStacks(l)
		}
	}()
	var in []region.Argument
	for _, list := range r.argumentLists() {
		for i, x := range list.nodes {
			in = append(in, region.Argument{Node: x, Mapping: list.mapping, Name: fmt.Sprintf("%s %d", list.role, i)})
		}
	}
	in = append(in, region.Argument{Node: r.index, Mapping: region.Slice{N: r.n}, Name: "index"})
	for _, s := range r.stacks {
		for _, x := range s.nodes {
			in = append(in, region.Argument{Node: x, Mapping: region.Slice{N: r.n}, Name: "variable " + s.path})
		}
	}
	if r.random != nil {
		in = append(in, region.Argument{Node: r.random.states, Mapping: region.Slice{N: r.n}, Name: "random numbers"})
	}
	for _, h := range r.written {
		in = append(in, region.Argument{Node: l.writes.ValueBefore(h), Mapping: region.Carry{},
			Name: "variable " + h.Name()})
	}
	return region.Trace(r.target, region.Loop{N: r.n, Policy: r.opts.Keep.RegionPolicy()}, in, l.traceBlock)
}

func graphParams(store *model.Store, g *graph.Graph) map[string]any {
	all := map[string]any{}
	for p := range store.IterGraphParams(g) {
		all[model.JoinPath(p.Scope, p.Key)] = p.Value
	}
	return all
}

// equalParams reports whether two parameter values are equal. Graph nodes and functions are
// compared by identity.
func equalParams(a, b any) bool {
	x, ok := a.(*graph.Node)
	y, also := b.(*graph.Node)
	if ok || also {
		return ok && also && x == y
	}
	if t := reflect.TypeOf(a); t != nil && t.Kind() == reflect.Func {
		return t == reflect.TypeOf(b) && reflect.ValueOf(a).Pointer() == reflect.ValueOf(b).Pointer()
	}
	return reflect.DeepEqual(a, b)
}
