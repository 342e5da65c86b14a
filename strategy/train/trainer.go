package train

import (
	"fmt"
	"maps"
	"slices"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/ml/model"
	"github.com/gomlx/gomlx/ml/model/initializer"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/internal/engine/fault"
	"github.com/tpustrategy/tpustrategy/internal/engine/saved"
	"github.com/tpustrategy/tpustrategy/internal/engine/stepstate"
	"github.com/tpustrategy/tpustrategy/internal/region"
	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/lowering/loop"
	"github.com/tpustrategy/tpustrategy/lowering/spmd"
	"github.com/tpustrategy/tpustrategy/strategy"
)

// trainer knows which variables a step trains, in one trace of it, and how what belongs to them lies
// on the devices.
//
// GoMLX's optimizers know the variables of a store. So a step that reads a variable of the scope has
// a proxy in its store while it is traced: a variable whose parameter is the read variable's own.
// What the optimizer writes to the proxy is written to the variable, and the optimizer's state
// for it stays in the store under the proxy's path.
type trainer struct {
	rc     *strategy.ReplicaContext
	inner  replica
	common *stepstate.State // what package strategy keeps of the step, too
	graph  *graph.Graph

	proxies []*proxy // in the order in which the step met their variables
	// frozen says which variables the step does not train, by their paths; nil for none. They stay
	// trainable in the store, so that they lie on the devices as variables that are trained.
	frozen func(path string) bool
	// reduceIn is the dtype in which loops over layers add up gradients over the replicas; that of the
	// variable if it is not set.
	reduceIn dtypes.DType
	micro    *microbatch // the one at hand
	places   map[*model.Variable]place
	// slices are the parts of stacked variables of which layers get slices, by the variables' paths.
	// looped are the whole stacks that loops read without a gradient of their own.
	slices map[string]*graph.Node
	looped map[*graph.Node]bool
}

// proxy is a variable of the store in the place of one of the scope.
type proxy struct {
	of    *strategy.Variable
	model *model.Variable
}

func newTrainer(rc *strategy.ReplicaContext) *trainer {
	inner := innerContext(rc)
	return &trainer{rc: rc, inner: inner, common: inner.State(), graph: rc.Graph(),
		places: map[*model.Variable]place{}, slices: map[string]*graph.Node{}, looped: map[*graph.Node]bool{}}
}

// begin makes the step a training step, before its loss is built.
func (t *trainer) begin() {
	t.inner.Meet(t.meet)
	if innerStrategy(t.rc.Strategy()).Sharding() {
		loop.SetSlicer(t.graph, t.slicing)
	}
}

// store is that of the step's variables.
func (t *trainer) store() *model.Store { return t.rc.Scope().Store() }

// trains reports whether a training step trains a variable of the scope if its loss reads it.
func trains(v *strategy.Variable) bool {
	dtype := v.Shape().DType
	return v.Trainable() && v.Synchronization() == strategy.OnWrite && (dtype.IsFloat() || dtype.IsComplex())
}

// meet gives a variable of the scope its proxy, if the step trains it.
func (t *trainer) meet(op string, v *strategy.Variable) (path string, first *graph.Node, wrote func(x *graph.Node)) {
	if v.Trainable() && v.Synchronization() == strategy.OnRead {
		panic(fault.New(errkind.ValueError, fmt.Sprintf("%s %q", op, v.Path()), "make it with OnWrite, or leave VariableOptions.Trainable unset",
			"a training step cannot train a variable whose components differ: it is trainable and OnRead"))
	}
	if !trains(v) {
		return "", nil, nil
	}
	path = saved.ProxyPath(v.Path())
	for n, first := 2, path; t.proxyOf(path) != nil; n++ {
		path = fmt.Sprintf("%s_%d", first, n)
	}
	if t.store().GetVariable(path) != nil {
		panic(fault.New(errkind.ValueError, fmt.Sprintf("%s %q", op, v.Path()), "give one of them another name",
			"the store has a variable at %q, which is where training steps keep what belongs to it", path))
	}
	s := &proxy{of: v, model: t.store().VariableWithShape(path, v.Shape(), initializer.Zero).SetTrainable(true)}
	t.proxies = append(t.proxies, s)
	return path, s.model.NodeValue(t.graph), func(x *graph.Node) { s.model.SetNodeValue(x) }
}

// proxyOf returns the proxy of a path of the store, or nil.
func (t *trainer) proxyOf(path string) *proxy {
	i := slices.IndexFunc(t.proxies, func(s *proxy) bool { return s.model.Path() == path })
	if i < 0 {
		return nil
	}
	return t.proxies[i]
}

// settleProxies puts the proxies behind the store's own variables, in the order in which they
// were met. The first trace makes the store's variables between them, later ones find them made: an
// optimizer must come to all in one order, for one text.
func (t *trainer) settleProxies() {
	t.drop()
	for _, s := range t.proxies { // its nodes are the graph's, by its path
		s.model = t.store().VariableWithShape(s.model.Path(), s.of.Shape(), initializer.Zero).SetTrainable(true)
	}
}

// finish writes to the variables of the scope what was written to their proxies.
func (t *trainer) finish() {
	for _, s := range t.proxies {
		if s.model.ChangedInGraph(t.graph) {
			t.inner.Held(s.of).Set(s.model.NodeValue(t.graph))
		}
	}
}

// drop removes the proxies from the store.
func (t *trainer) drop() {
	for _, s := range t.proxies {
		_ = t.store().DeleteVariable(s.model.Path())
	}
}

// pathOf is the path by which users know a variable of the step's store: that of the variable of
// the scope for a proxy.
func (t *trainer) pathOf(path string) string {
	if s := t.proxyOf(path); s != nil {
		return s.of.Path()
	}
	return path
}

// freeze says which variables the step does not train, by their paths.
func (t *trainer) freeze(frozen func(path string) bool) {
	t.frozen = frozen
	region.SetFrozen(t.graph, func(parameter string) bool { return frozen(t.pathOf(parameter)) })
}

// used are the trainable variables that the step uses, frozen ones too.
func (t *trainer) used() (all []*model.Variable) {
	for v := range t.rc.Scope().IterVariables() {
		if v.Trainable && v.InUseByGraph(t.graph) {
			all = append(all, v)
		}
	}
	return all
}

// freezes reports whether the step leaves a trainable variable as it is.
func (t *trainer) freezes(v *model.Variable) bool {
	return t.frozen != nil && t.frozen(t.pathOf(v.Path()))
}

// variables are those that the step's gradients are for, in their order.
func (t *trainer) variables() []*model.Variable { return slices.DeleteFunc(t.used(), t.freezes) }

// paths are those by which users know variables.
func (t *trainer) paths(of []*model.Variable) (all []string) {
	for _, v := range of {
		all = append(all, t.pathOf(v.Path()))
	}
	return all
}

// withoutFrozen runs f with a store in which the variables that are not trained are not trainable.
func (t *trainer) withoutFrozen(store *model.Store, f func()) {
	var all []*model.Variable
	for v := range store.IterVariables() {
		if v.Trainable && t.freezes(v) {
			all = append(all, v.SetTrainable(false))
		}
	}
	defer func() {
		for _, v := range all {
			v.SetTrainable(true)
		}
	}()
	f()
}

// keepFrozen runs f and leaves variables that the step does not train as they were before.
func (t *trainer) keepFrozen(f func()) {
	keep := map[*model.Variable]*graph.Node{}
	for _, v := range t.used() {
		if t.freezes(v) {
			keep[v] = v.NodeValue(t.graph)
		}
	}
	f()
	for v, was := range keep {
		v.SetNodeValue(was)
	}
}

// place says how what belongs to a trained variable, its gradient and the optimizer's state, is cut
// over the replicas, how it and the variable are split over the logical devices, and what of it the
// replicas share out.
type place struct {
	over  spmd.ReplicaShard
	split logical.Annotation
	state logical.StateSharding
}

func (t *trainer) place(v *model.Variable) place {
	p, ok := t.places[v]
	if !ok {
		p.over, p.split, p.state = t.inner.Belonging(v)
		t.places[v] = p
	}
	return p
}

func (t *trainer) over(v *model.Variable) spmd.ReplicaShard { return t.place(v).over }

// inParts reports whether the replicas have parts of some gradients.
func (t *trainer) inParts() bool {
	return slices.ContainsFunc(t.variables(), func(v *model.Variable) bool { return t.over(v).Is() })
}

// weighted is a replica's mean over its rows so that the mean of the replicas is that over all rows,
// and that of the microbatches the replica's.
func (t *trainer) weighted(mean *graph.Node) *graph.Node {
	if rows, _ := t.inner.Rows(); rows != nil || t.micro == nil {
		return t.inner.Weighted(mean)
	}
	return times(mean, constant(t.graph, factorDType(mean.DType()), t.micro.share))
}

// rows are the replica's real rows, or a microbatch's, an int32 scalar; nil if the step's arguments
// have no padded rows.
func (t *trainer) rows() *graph.Node {
	rows, _ := t.inner.Rows()
	if rows == nil && t.micro != nil {
		return constant(t.graph, dtypes.Int32, float64(t.micro.rows))
	}
	return rows
}

// ifRows is x on replicas that have rows, and otherwise y.
func ifRows(rows, x, y *graph.Node) *graph.Node {
	return graph.Where(graph.GreaterThan(rows, graph.ZerosLike(rows)), x, y)
}

// gradientsOf are the gradients of the replica's loss, zeros where it has no rows: what has no rows
// has no mean, nor gradients of it.
func (t *trainer) gradientsOf(loss *graph.Node) []*graph.Node {
	rows, _ := t.inner.Rows()
	t.settleProxies()
	trained := t.variables()
	var nodes []*graph.Node
	for _, v := range trained {
		nodes = append(nodes, v.NodeValue(t.graph))
	}
	var gradients []*graph.Node
	if len(t.slices) > 0 {
		gradients = t.gradientsOfSlices(loss, trained, nodes)
	} else {
		gradients = graph.Gradient(loss, nodes...)
	}
	for i, gradient := range gradients {
		if rows != nil && t.slices[trained[i].Path()] == nil { // slicing has seen to those
			gradients[i] = ifRows(rows, gradient, graph.ZerosLike(gradient))
		}
	}
	return gradients
}

// gradientsOfSlices are the gradients of the loss for the trained variables, whose nodes are given.
// For those of which layers get slices they are the replica's parts of the sum over the replicas.
func (t *trainer) gradientsOfSlices(loss *graph.Node, trained []*model.Variable, nodes []*graph.Node) []*graph.Node {
	at := map[int]int{} // of the parts
	ends := maps.Clone(t.looped)
	for i, v := range trained {
		if part := t.slices[v.Path()]; part != nil {
			at[i], ends[part] = len(nodes), true
			nodes = append(nodes, part)
		}
	}
	all := graph.Gradient(loss, nodes...)
	reached := map[*graph.Node]bool{}
	var reach func(n *graph.Node)
	reach = func(n *graph.Node) {
		if reached[n] || ends[n] {
			return
		}
		reached[n] = true
		for _, in := range n.Inputs() {
			reach(in)
		}
	}
	reach(loss)
	gradients := all[:len(trained):len(trained)]
	for i, v := range trained {
		part, ok := at[i]
		if !ok {
			continue
		}
		whole := gradients[i]
		gradients[i] = all[part]
		if reached[nodes[i]] { // it is read whole as well
			gradients[i] = graph.Add(gradients[i], spmd.ScatterPart(whole, t.over(v), t.place(v).split))
		}
	}
	return gradients
}
