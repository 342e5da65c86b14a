package loop

import (
	"fmt"
	"slices"

	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/ml/model"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/internal/region"
)

type layer struct {
	*layerLoop
	writes  *region.WriteRecorder
	store   *model.Store // has the layer's variables
	outside *model.Store // the graph's store
	// outerNodes are the nodes of the stacked variables outside of the loop, and innerNodes the
	// nodes inside.
	outerNodes []*graph.Node
	innerNodes []*graph.Node
	state      *graph.Node // random state outside of the loop, nil if unused

	results  Results
	cleanups []func() // called by restoreGraph
	// rewindScopes marks the scopes that the trace has used as unused.
	rewindScopes  func()
	changed       []*stack   // stacks that the layer updates
	changedLosses []*lossSum // losses to which the layer adds
	foundWrites   bool       // found variables of the step that the block writes
}

// newLayer prepares a trace of one layer, with a new store for the variables of the layer.
func (r *layerLoop) newLayer() *layer {
	l := &layer{layerLoop: r, writes: region.RecordWrites(r.target, r.graph), store: model.NewStore(),
		outside: model.GetStore(r.graph)}
	for path, value := range r.scope.Store().IterParams() {
		l.store.SetParam(path, value)
	}
	for _, s := range r.stacks {
		l.outerNodes = append(l.outerNodes, s.variable.NodeValue(r.graph))
	}
	if r.state.InUseByGraph(r.graph) {
		l.state = r.state.NodeValue(r.graph)
	}
	return l
}

// checkParameter is called for each new parameter of the graph. If the parameter is a variable of
// the layer and no stacked variable exists for it, checkParameter returns an error and the trace is
// abandoned.
func (l *layer) checkParameter(name string) error {
	if l.store.GetVariable(name) == nil {
		return nil
	}
	l.abandoned = true
	return &errkind.Fault{Op: "loop:", Subject: fmt.Sprintf("variable %q", name), Reason: "it has no stack yet",
		Hint: "let the error pass: the loop traces the block again", Class: errkind.InternalError}
}

func (l *layer) traceBlock(in []*graph.Node) (results []region.Result) {
	take := func(n int) (list []*graph.Node) {
		list, in = in[:n:n], in[n:]
		return list
	}
	of := &Layer{Carried: take(len(l.arguments.Carried)), Shared: take(len(l.arguments.Shared)),
		Sliced: take(len(l.arguments.Sliced)), Index: take(1)[0]}
	for _, s := range l.stacks {
		slices := take(len(s.nodes))
		value := slices[0]
		if s.layer != nil {
			value = region.AllowCapture(l.target, s.layer(slices))
		}
		l.innerNodes = append(l.innerNodes, value)
		s.variable.SetNodeValue(value)
	}
	if l.layerLoop.random != nil {
		l.layerLoop.random.variable.SetNodeValue(take(1)[0])
	}
	for _, h := range l.written {
		l.writes.SetStart(h, take(1)[0])
	}
	l.setGraphState()
	of.Scope = l.store.Scope(l.scope.Scope()).WithInitializer(l.scope.Initializer())
	l.opts.Keep.CheckNames("loop:", l.graph, func() { l.results = l.block(of) })
	if l.abandoned || l.needsRetrace() || l.recordWrites() {
		panic("loop: the block is traced again") // see trace
	}
	l.checkResults()
	add := func(role string, crossing region.Mapping, list ...*graph.Node) {
		for i, y := range list {
			results = append(results, region.Result{Node: y, Mapping: crossing, Name: fmt.Sprintf("%s %d", role, i)})
		}
	}
	sliced := region.Slice{N: l.n}
	add("carried", region.Carry{}, l.results.Carried...)
	add("stacked", sliced, l.results.Stacked...)
	add("summed", region.Identity{}, l.results.Summed...)
	for i, s := range l.stacks {
		if now := s.variable.NodeValue(l.graph); now != l.innerNodes[i] {
			if !now.Shape().Equal(s.shape) {
				l.fail(fmt.Sprintf("variable %q", s.path),
					fmt.Sprintf("a layer sets it to a value of %s, and it is %s", now.Shape(), s.shape),
					"set it to a value of its own shape")
			}
			l.changed = append(l.changed, s)
			add("variable "+s.path, sliced, now)
		}
	}
	for _, loss := range l.losses {
		if sum := loss.layerSum(); sum != nil {
			l.changedLosses = append(l.changedLosses, loss)
			add(loss.name, region.Identity{}, sum)
		}
	}
	for _, h := range l.written {
		add("variable "+h.Name(), region.Carry{}, h.Value())
	}
	return results
}

// recordWrites records which variables of the strategy the layer writes. It reports whether this
// trace found a variable that earlier traces did not find.
func (l *layer) recordWrites() bool {
	for _, h := range l.writes.Written() {
		if !slices.Contains(l.written, h) {
			l.layerLoop.written, l.abandoned, l.foundWrites = append(l.layerLoop.written, h), true, true
		}
	}
	return l.foundWrites
}

// needsRetrace reports whether the layer must be traced again: it used a variable that has no
// stacked variable yet, or drew random numbers before each layer had a random state.
func (l *layer) needsRetrace() bool {
	for v := range l.store.IterVariables() {
		if v.Path() == rngPath && l.layerLoop.random == nil || v.Path() != rngPath && !l.hasStack(v.Path()) &&
			v.InUseByGraph(l.graph) {
			return true
		}
	}
	return false
}

// setGraphState replaces the graph's store and loss sums by the store and loss sums of the layer,
// until restoreGraph is called.
func (l *layer) setGraphState() {
	model.SetStore(l.graph, l.store)
	around := l.graph.State(layerLoopKey{})
	if around == nil {
		around = (*layerLoop)(nil)
	}
	l.graph.AttachState(layerLoopKey{}, l.layerLoop)
	l.cleanups = append(l.cleanups, func() { l.graph.AttachState(layerLoopKey{}, around) })
	l.rewindScopes = func() {}
	if mark, ok := l.graph.State(scopeMarkerKey{}).(func() func()); ok {
		l.rewindScopes = mark()
	}
	for _, loss := range l.losses {
		loss.startLayer()
	}
}

// restoreGraph undoes setGraphState and resets all variables to their nodes before the loop.
func (l *layer) restoreGraph() {
	for _, end := range l.cleanups {
		end()
	}
	l.cleanups = nil
	model.SetStore(l.graph, l.outside)
	for i, s := range l.stacks[:len(l.outerNodes)] {
		s.variable.SetNodeValue(l.outerNodes[i])
	}
	if l.state == nil { // the layer may be the first to use random numbers
		l.state = l.graph.GetParameterByName(rngPath)
	}
	if l.state != nil {
		l.layerLoop.state.SetNodeValue(l.state)
	}
	for _, loss := range l.losses {
		loss.restore()
	}
	l.writes.Restore()
}

// checkResults panics if the function that traces a layer returned invalid results, or if it set a
// parameter of the graph that cannot be used after the loop.
func (l *layer) checkResults() {
	for _, list := range []struct {
		role  string
		nodes []*graph.Node
	}{{"carried", l.results.Carried}, {"stacked", l.results.Stacked}, {"summed", l.results.Summed}} {
		for i, y := range list.nodes {
			if y == nil || y.Graph() != l.graph {
				l.fail(fmt.Sprintf("%s result %d", list.role, i), "it is not a node of this graph",
					"return nodes computed from the layer's inputs")
			}
		}
	}
	if want, got := len(l.arguments.Carried), len(l.results.Carried); want != got {
		l.fail("", fmt.Sprintf("a layer gets %d carried values and returns %d", want, got), "return one for each")
	}
	for i, y := range l.results.Carried {
		if x := l.arguments.Carried[i]; !x.Shape().Equal(y.Shape()) {
			l.fail(fmt.Sprintf("carried result %d", i), fmt.Sprintf("a layer gets %s and returns %s", x.Shape(),
				y.Shape()),
				"return the shape and dtype of the layer's input")
		}
	}
	l.checkVariables()
	for path, value := range graphParams(l.store, l.graph) {
		before, had := l.params[path]
		if had && equalParams(before, value) || l.isLossPath(path) {
			continue
		}
		switch value.(type) {
		case bool, string, int, int32, int64, float32, float64, nil:
			continue
		}
		l.failWithKind(errkind.NotImplementedError, fmt.Sprintf("parameter %q of the graph", path),
			fmt.Sprintf("a layer set it, to a %T that belongs to the layer", value),
			"set it outside of the loop: per-step updates and nodes inside of a loop cannot be used after it")
	}
}

func (l *layer) isLossPath(path string) bool {
	return slices.ContainsFunc(l.losses, func(loss *lossSum) bool { return loss.path == path })
}
