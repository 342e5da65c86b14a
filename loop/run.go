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

// run is one call of Run. GoMLX's layers make their variables in a store. A loop gives them a store
// of its own, whose variables have a layer's shapes and the paths of the stacks: GoMLX knows a
// variable's node in a graph by its path, so that the layers find the slices there. Which variables
// there are is not known before the block has run. The block is therefore traced, and asks for a
// variable that has no stack, or finds the node of a stack that the graph uses already; that trace
// is given up, the stack is made, and the block is traced again, until there is nothing that it
// asks for.
type run struct {
	scope     *model.Scope
	n         int
	arguments Arguments
	block     func(layer *Layer) Results
	opts      Options

	graph  *graph.Graph
	target region.Target
	index  *graph.Node // the layers' numbers
	stacks []*stack    // in the order in which the block asked for them
	random *generators // nil while the block draws nothing
	// state stands for the random numbers of whatever store the loop is in: their node goes by the
	// path.
	state  *model.Variable
	losses []*loss
	held   []region.StepVariable // variables of the step that the block writes
	params map[string]any        // of the graph, before
	depth  int                   // how many loops are around this one
	bare   bool                  // there is no scope for variables
	// asked is set when a trace was given up, with the variable that it asked for.
	asked bool
}

// maxRuns bounds the runs of a loop: their numbers, and the first values of their variables, are in
// the program and in memory.
const maxRuns = 1 << 16

// runKey is the loop at hand of a graph, for those inside of it.
type runKey struct{}

func newRun(scope *model.Scope, n int, arguments Arguments, block func(layer *Layer) Results, opts Options) *run {
	r := &run{scope: scope, n: n, arguments: arguments, block: block, opts: opts}
	if scope == nil {
		r.scope, r.bare = model.NewStore().RootScope(), true
	}
	switch {
	case n < 1:
		r.fail("", fmt.Sprintf("it is to run %d times", n), "use at least one layer")
	case n > maxRuns:
		r.fail("", fmt.Sprintf("it is to run %d times", n), fmt.Sprintf("use at most %d", maxRuns))
	case block == nil:
		r.fail("", "there is no block", "pass the function that builds a layer")
	case len(arguments.Carried) == 0:
		r.fail("", "nothing is carried from layer to layer", "give Arguments.Carried the first layer's input")
	}
	for _, list := range r.lists() {
		for i, x := range list.nodes {
			if x == nil {
				r.fail(fmt.Sprintf("%s argument %d", list.role, i), "it is nil", "pass a node of the step")
			}
		}
	}
	r.graph = arguments.Carried[0].Graph()
	target, ok := r.graph.Backend().(region.Target)
	if !ok {
		r.fail("", fmt.Sprintf("a graph of backend %q has no loops over layers", r.graph.Backend().Name()), "trace the step through a strategy")
	}
	r.target = target
	if around, ok := r.graph.State(runKey{}).(*run); ok && around != nil {
		r.depth = around.depth + 1
	}
	r.state = generator(model.NewStore())
	r.params = graphParams(r.scope.Store(), r.graph)
	r.losses = newLosses(r.graph)
	r.index = graph.Iota(r.graph, shapes.Make(dtypes.Int32, n), 0)
	return r
}

// list is a list of arguments that cross alike.
type list struct {
	role     string
	crossing region.Crossing
	nodes    []*graph.Node
}

func (r *run) lists() []list {
	return []list{{"carried", region.Carry{}, r.arguments.Carried}, {"same", region.Same{}, r.arguments.Same},
		{"sliced", region.Slice{N: r.n}, r.arguments.Sliced}}
}

// fail panics with what is wrong.
func (r *run) fail(subject, reason, hint string) { r.failOf(errkind.ValueError, subject, reason, hint) }

func (r *run) failOf(kind errkind.Kind, subject, reason, hint string) {
	op := "loop"
	if subject != "" {
		op = "loop:"
	}
	panic(&errkind.Fault{Op: op, Subject: subject, Reason: reason, Hint: hint, Class: kind})
}

// attempt traces the block. It reports false if the block asked for a variable that has a stack by
// now.
func (r *run) attempt() (results Results, ok bool) {
	layer := r.newLayer()
	all := r.trace(layer)
	if r.asked {
		return Results{}, false
	}
	take := func(n int) (list []*graph.Node) {
		list, all = all[:n:n], all[n:]
		return list
	}
	results = Results{Carried: take(len(layer.results.Carried)), Stacked: take(len(layer.results.Stacked)), Summed: take(len(layer.results.Summed))}
	for _, s := range layer.changed {
		s.variable.SetNodeValue(take(1)[0])
	}
	for _, l := range layer.lost {
		l.add(take(1)[0])
	}
	for _, h := range r.held {
		h.Set(take(1)[0])
	}
	layer.settle()
	r.visit()
	return results, true
}

// visit marks the scopes of the stacks as used, as [model.Scope.In] does, so that GoMLX refuses another
// layer or another loop there.
func (r *run) visit() {
	seen := map[string]bool{}
	for _, s := range r.stacks {
		rest := strings.TrimPrefix(strings.TrimPrefix(s.path, r.scope.Scope()), model.ScopeSeparator)
		if inner, _, nested := strings.Cut(rest, model.ScopeSeparator); nested && !seen[inner] {
			seen[inner] = true
			r.scope.In("%s", inner)
		}
	}
}

// trace traces the block and returns the region's results. It sets asked if it gave up.
func (r *run) trace(l *layer) (all []*graph.Node) {
	r.asked = false
	done := r.target.Ask(l.ask)
	defer func() {
		done()
		l.restore()
		if r.asked || l.unknown() {
			r.asked = true
			_ = recover() // whatever GoMLX and the block made of it
			l.rewindScopes()
			r.learn(l)
		}
	}()
	var in []region.Argument
	for _, list := range r.lists() {
		for i, x := range list.nodes {
			in = append(in, region.Argument{Node: x, Crossing: list.crossing, Name: fmt.Sprintf("%s %d", list.role, i)})
		}
	}
	in = append(in, region.Argument{Node: r.index, Crossing: region.Slice{N: r.n}, Name: "index"})
	for _, s := range r.stacks {
		for _, x := range s.nodes {
			in = append(in, region.Argument{Node: x, Crossing: region.Slice{N: r.n}, Name: "variable " + s.path})
		}
	}
	if r.random != nil {
		in = append(in, region.Argument{Node: r.random.states, Crossing: region.Slice{N: r.n}, Name: "random numbers"})
	}
	for _, h := range r.held {
		in = append(in, region.Argument{Node: l.writes.Outside(h), Crossing: region.Carry{}, Name: "variable " + h.Name()})
	}
	return region.Trace(r.target, region.Loop{N: r.n, Keep: r.opts.Keep.Keep()}, in, l.build)
}

// graphParams are the parameters that layers have set on the graph.
func graphParams(store *model.Store, g *graph.Graph) map[string]any {
	all := map[string]any{}
	for p := range store.IterGraphParams(g) {
		all[model.JoinPath(p.Scope, p.Key)] = p.Value
	}
	return all
}

// same reports whether two parameters are the same: nodes by identity.
func same(a, b any) bool {
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
