package loop

import (
	"fmt"
	"slices"

	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/ml/model"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/internal/region"
)

// layer is one trace of the block.
type layer struct {
	*run
	writes  *region.Writes
	store   *model.Store // has the layer's variables
	outside *model.Store // the graph's store
	// before are the nodes of the variables outside, given those inside.
	before []*graph.Node
	given  []*graph.Node
	state  *graph.Node // of random numbers outside, nil if they are not in use

	results Results
	ends    []func() // see restore
	// rewindScopes restores which scopes of the step were in use before the trace.
	rewindScopes func()
	changed      []*stack // have another value after the layer
	lost         []*loss  // were added to
	learned      bool     // of variables of the step that the block writes
}

// newLayer makes the store of a trace.
func (r *run) newLayer() *layer {
	l := &layer{run: r, writes: region.Watch(r.target, r.graph), store: model.NewStore(), outside: model.GetStore(r.graph)}
	for path, value := range r.scope.Store().IterParams() {
		l.store.SetParam(path, value)
	}
	for _, s := range r.stacks {
		l.before = append(l.before, s.variable.NodeValue(r.graph))
	}
	if r.state.InUseByGraph(r.graph) {
		l.state = r.state.NodeValue(r.graph)
	}
	return l
}

// ask refuses parameters for variables of the layer that have no stack.
func (l *layer) ask(name string) error {
	if l.store.GetVariable(name) == nil {
		return nil
	}
	l.asked = true
	return &errkind.Fault{Op: "loop:", Subject: fmt.Sprintf("variable %q", name), Reason: "it has no stack yet",
		Hint: "let the error pass: the loop traces the block again", Class: errkind.InternalError}
}

// build traces the block inside of the region.
func (l *layer) build(in []*graph.Node) (results []region.Result) {
	take := func(n int) (list []*graph.Node) {
		list, in = in[:n:n], in[n:]
		return list
	}
	of := &Layer{Carried: take(len(l.arguments.Carried)), Same: take(len(l.arguments.Same)), Sliced: take(len(l.arguments.Sliced)), Index: take(1)[0]}
	for _, s := range l.stacks {
		slices := take(len(s.nodes))
		value := slices[0]
		if s.layer != nil {
			value = region.Leaf(l.target, s.layer(slices))
		}
		l.given = append(l.given, value)
		s.variable.SetNodeValue(value)
	}
	if l.run.random != nil {
		l.run.random.variable.SetNodeValue(take(1)[0])
	}
	for _, h := range l.held {
		l.writes.Begin(h, take(1)[0])
	}
	l.begin()
	of.Scope = l.store.Scope(l.scope.Scope()).WithInitializer(l.scope.Initializer())
	l.opts.Keep.Check("loop:", l.graph, func() { l.results = l.block(of) })
	if l.asked || l.unknown() || l.wrote() {
		panic("loop: the block is traced again") // see trace
	}
	l.check()
	add := func(role string, crossing region.Crossing, list ...*graph.Node) {
		for i, y := range list {
			results = append(results, region.Result{Node: y, Crossing: crossing, Name: fmt.Sprintf("%s %d", role, i)})
		}
	}
	sliced := region.Slice{N: l.n}
	add("carried", region.Carry{}, l.results.Carried...)
	add("stacked", sliced, l.results.Stacked...)
	add("summed", region.Same{}, l.results.Summed...)
	for i, s := range l.stacks {
		if now := s.variable.NodeValue(l.graph); now != l.given[i] {
			if !now.Shape().Equal(s.shape) {
				l.fail(fmt.Sprintf("variable %q", s.path), fmt.Sprintf("a layer sets it to a value of %s, and it is %s", now.Shape(), s.shape), "set it to a value of its own shape")
			}
			l.changed = append(l.changed, s)
			add("variable "+s.path, sliced, now)
		}
	}
	for _, loss := range l.losses {
		if sum := loss.inside(); sum != nil {
			l.lost = append(l.lost, loss)
			add(loss.name, region.Same{}, sum)
		}
	}
	for _, h := range l.held {
		add("variable "+h.Name(), region.Carry{}, h.Now())
	}
	return results
}

// wrote reports whether the block wrote variables of the step that are not yet known to be written,
// and makes them known.
func (l *layer) wrote() bool {
	for _, h := range l.writes.Written() {
		if !slices.Contains(l.held, h) {
			l.run.held, l.asked, l.learned = append(l.run.held, h), true, true
		}
	}
	return l.learned
}

// unknown reports whether the block used a variable that is no stack's, or random numbers that are
// the same in each layer.
func (l *layer) unknown() bool {
	for v := range l.store.IterVariables() {
		if v.Path() == randomPath && l.run.random == nil || v.Path() != randomPath && !l.stacked(v.Path()) && v.InUseByGraph(l.graph) {
			return true
		}
	}
	return false
}

// begin makes the graph the layer's.
func (l *layer) begin() {
	model.SetStore(l.graph, l.store)
	around := l.graph.State(runKey{})
	if around == nil {
		around = (*run)(nil)
	}
	l.graph.AttachState(runKey{}, l.run)
	l.ends = append(l.ends, func() { l.graph.AttachState(runKey{}, around) })
	l.rewindScopes = func() {}
	if mark, ok := l.graph.State(scopesKey{}).(func() func()); ok {
		l.rewindScopes = mark()
	}
	for _, loss := range l.losses {
		loss.begin()
	}
}

// restore makes the graph the step's again.
func (l *layer) restore() {
	for _, end := range l.ends {
		end()
	}
	l.ends = nil
	model.SetStore(l.graph, l.outside)
	for i, s := range l.stacks[:len(l.before)] {
		s.variable.SetNodeValue(l.before[i])
	}
	if l.state == nil { // the layer was the first to use random numbers, if it did
		l.state = l.graph.GetParameterByName(randomPath)
	}
	if l.state != nil {
		l.run.state.SetNodeValue(l.state)
	}
	for _, loss := range l.losses {
		loss.restore()
	}
	l.writes.Restore()
}

// check checks what the block returned and what it left behind.
func (l *layer) check() {
	for _, list := range []struct {
		role  string
		nodes []*graph.Node
	}{{"carried", l.results.Carried}, {"stacked", l.results.Stacked}, {"summed", l.results.Summed}} {
		for i, y := range list.nodes {
			if y == nil || y.Graph() != l.graph {
				l.fail(fmt.Sprintf("%s result %d", list.role, i), "it is not a node of this graph", "return nodes made from the layer's")
			}
		}
	}
	if want, got := len(l.arguments.Carried), len(l.results.Carried); want != got {
		l.fail("", fmt.Sprintf("a layer gets %d carried values and returns %d", want, got), "return one for each")
	}
	for i, y := range l.results.Carried {
		if x := l.arguments.Carried[i]; !x.Shape().Equal(y.Shape()) {
			l.fail(fmt.Sprintf("carried result %d", i), fmt.Sprintf("a layer gets %s and returns %s", x.Shape(), y.Shape()),
				"return the shape and the dtype that came in: the next layer gets it")
		}
	}
	l.compare()
	for path, value := range graphParams(l.store, l.graph) {
		before, had := l.params[path]
		if had && same(before, value) || l.lossAt(path) {
			continue
		}
		switch value.(type) {
		case bool, string, int, int32, int64, float32, float64, nil:
			continue
		}
		l.failOf(errkind.NotImplementedError, fmt.Sprintf("parameter %q of the graph", path), fmt.Sprintf("a layer set it, to a %T that belongs to the layer", value),
			"set it outside of the loop: per-step updates and nodes inside of a loop cannot be used after it")
	}
}

func (l *layer) lossAt(path string) bool {
	return slices.ContainsFunc(l.losses, func(loss *loss) bool { return loss.path == path })
}
