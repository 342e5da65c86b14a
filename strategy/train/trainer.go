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
	"github.com/tpustrategy/tpustrategy/internal/engine"
	"github.com/tpustrategy/tpustrategy/internal/engine/fault"
	"github.com/tpustrategy/tpustrategy/internal/engine/savedstep"
	"github.com/tpustrategy/tpustrategy/internal/engine/stepstate"
	"github.com/tpustrategy/tpustrategy/internal/region"
	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/lowering/loop"
	"github.com/tpustrategy/tpustrategy/lowering/spmd"
	"github.com/tpustrategy/tpustrategy/strategy"
)

// trainer determines which variables a step trains, and how their gradients and optimizer state are
// sharded. A trainer is used for one trace.
//
// GoMLX's optimizers only update variables of a store. Therefore, while the step is traced, the
// store contains a proxy for each trained variable of the strategy's scope. A proxy is a store
// variable with the same graph parameter. Values that the optimizer writes to the proxy are written
// to the original variable. The optimizer's state remains in the store under the proxy's path.
type trainer struct {
	rc     *strategy.ReplicaContext
	common *stepstate.State // shared with package strategy
	graph  *graph.Graph

	proxies []*proxy // in the order in which the step first used their variables
	// frozen reports whether the step does not train the variable with a path; nil means that the step
	// trains all variables. Frozen variables remain trainable in the store, so that they are sharded
	// like trained variables.
	frozen func(path string) bool
	// reduceIn is the dtype in which loops over layers sum gradients over the replicas. The default
	// is the dtype of the variable.
	reduceIn dtypes.DType
	micro    *microbatch // the microbatch that is being traced, or nil
	places   map[*model.Variable]placement
	// slices are the shards of stacked variables that loops over layers slice, by path. looped are the
	// replicated stacks that such loops read without a gradient.
	slices map[string]*graph.Node
	looped map[*graph.Node]bool
}

// proxy is a temporary store variable that represents a variable of the strategy's scope, because
// GoMLX's optimizers only update store variables.
type proxy struct {
	of    *strategy.Variable
	model *model.Variable
}

func newTrainer(rc *strategy.ReplicaContext) *trainer {
	return &trainer{rc: rc, common: engine.Internal(rc).State(), graph: rc.Graph(),
		places: map[*model.Variable]placement{}, slices: map[string]*graph.Node{}, looped: map[*graph.Node]bool{}}
}

// begin prepares the trace for training. It must run before the loss is built.
func (t *trainer) begin() {
	engine.Internal(t.rc).SetVariableHook(t.addProxy)
	if engine.Internal(t.rc.Strategy()).ShardsState() {
		loop.SetSlicer(t.graph, t.layerSlices)
	}
}

func (t *trainer) store() *model.Store { return t.rc.Scope().Store() }

// isTrained reports whether a training step trains the variable v of the strategy's scope if its
// loss reads v.
func isTrained(v *strategy.Variable) bool {
	dtype := v.Shape().DType
	return v.Trainable() && v.Synchronization() == strategy.OnWrite && (dtype.IsFloat() || dtype.IsComplex())
}

// addProxy creates a proxy of v in the store if the step trains v. It returns the proxy's path and
// value, and a function that the strategy calls with each new value of v.
func (t *trainer) addProxy(op string, v *strategy.Variable) (path string, first *graph.Node,
	wrote func(x *graph.Node)) {
	if v.Trainable() && v.Synchronization() == strategy.OnRead {
		panic(fault.New(errkind.ValueError, fmt.Sprintf("%s %q", op, v.Path()),
			"make it with OnWrite, or leave VariableOptions.Trainable unset",
			"a training step cannot train a variable whose components differ: it is trainable and OnRead"))
	}
	if !isTrained(v) {
		return "", nil, nil
	}
	path = savedstep.ProxyPath(v.Path())
	for n, first := 2, path; t.findProxy(path) != nil; n++ {
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

func (t *trainer) findProxy(path string) *proxy {
	i := slices.IndexFunc(t.proxies, func(s *proxy) bool { return s.model.Path() == path })
	if i < 0 {
		return nil
	}
	return t.proxies[i]
}

// moveProxiesToEnd moves the proxies after the store's other variables, in the order of their first
// use. In the first trace, layers create variables between the proxies; in later traces these
// variables already exist. The move makes the order of the variables, and therefore the program,
// equal for all traces.
func (t *trainer) moveProxiesToEnd() {
	t.deleteProxies()
	for _, s := range t.proxies { // the graph finds its nodes by path
		s.model = t.store().VariableWithShape(s.model.Path(), s.of.Shape(), initializer.Zero).SetTrainable(true)
	}
}

// writeProxyValues writes the new values of the proxies to the variables of the strategy's scope.
func (t *trainer) writeProxyValues() {
	for _, s := range t.proxies {
		if s.model.ChangedInGraph(t.graph) {
			engine.Internal(t.rc).StepVariable(s.of).SetValue(s.model.NodeValue(t.graph))
		}
	}
}

func (t *trainer) deleteProxies() {
	for _, s := range t.proxies {
		_ = t.store().DeleteVariable(s.model.Path())
	}
}

// userPath returns the path of a variable for messages to users. For a proxy it is the path of the
// original variable.
func (t *trainer) userPath(path string) string {
	if s := t.findProxy(path); s != nil {
		return s.of.Path()
	}
	return path
}

func (t *trainer) freeze(frozen func(path string) bool) {
	t.frozen = frozen
	region.SetFrozen(t.graph, func(parameter string) bool { return frozen(t.userPath(parameter)) })
}

// usedVariables returns the trainable variables that the step uses, including frozen ones.
func (t *trainer) usedVariables() (all []*model.Variable) {
	for v := range t.rc.Scope().IterVariables() {
		if v.Trainable && v.InUseByGraph(t.graph) {
			all = append(all, v)
		}
	}
	return all
}

func (t *trainer) isFrozen(v *model.Variable) bool {
	return t.frozen != nil && t.frozen(t.userPath(v.Path()))
}

// trainedVariables returns the trained variables. The gradients have the same order.
func (t *trainer) trainedVariables() []*model.Variable {
	return slices.DeleteFunc(t.usedVariables(), t.isFrozen)
}

// userPaths returns the path of each variable for messages to users.
func (t *trainer) userPaths(of []*model.Variable) (all []string) {
	for _, v := range of {
		all = append(all, t.userPath(v.Path()))
	}
	return all
}

// withoutFrozen runs f while the frozen variables of the store are marked as not trainable.
func (t *trainer) withoutFrozen(store *model.Store, f func()) {
	var all []*model.Variable
	for v := range store.IterVariables() {
		if v.Trainable && t.isFrozen(v) {
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

// keepFrozen runs f and undoes the changes that f makes to frozen variables.
func (t *trainer) keepFrozen(f func()) {
	keep := map[*model.Variable]*graph.Node{}
	for _, v := range t.usedVariables() {
		if t.isFrozen(v) {
			keep[v] = v.NodeValue(t.graph)
		}
	}
	f()
	for v, was := range keep {
		v.SetNodeValue(was)
	}
}

// placement describes how the gradient and the optimizer's state of a trained variable are sharded.
type placement struct {
	over    spmd.ReplicaShard  // over the replicas
	split   logical.Annotation // over the logical devices, like the variable
	sharded logical.StateParts // which of variable, gradient and state are sharded over the replicas
}

func (t *trainer) placementOf(v *model.Variable) placement {
	p, ok := t.places[v]
	if !ok {
		p.over, p.split, p.sharded = engine.Internal(t.rc).GradientSharding(v)
		t.places[v] = p
	}
	return p
}

func (t *trainer) gradientShard(v *model.Variable) spmd.ReplicaShard { return t.placementOf(v).over }

// hasShardedGradients reports whether at least one gradient is sharded over the replicas.
func (t *trainer) hasShardedGradients() bool {
	return slices.ContainsFunc(t.trainedVariables(),
		func(v *model.Variable) bool { return t.gradientShard(v).IsSharded() })
}

// weightByRows scales a mean over a replica's rows so that the average of the scaled means over the
// replicas is the mean over all rows of the batch. Within a microbatch it scales the mean so that
// the sum over the microbatches has this property.
func (t *trainer) weightByRows(mean *graph.Node) *graph.Node {
	if rows, _ := engine.Internal(t.rc).RowCounts(); rows != nil || t.micro == nil {
		return engine.Internal(t.rc).WeightByRows(mean)
	}
	return multiplyByScalar(mean, constant(t.graph, factorDType(mean.DType()), t.micro.meanWeight))
}

// rowCount returns the number of rows of the replica or of its current microbatch, without padding,
// as an int32 scalar. Outside of a microbatch it returns nil if no rows are padding.
func (t *trainer) rowCount() *graph.Node {
	rows, _ := engine.Internal(t.rc).RowCounts()
	if rows == nil && t.micro != nil {
		return constant(t.graph, dtypes.Int32, float64(t.micro.rows))
	}
	return rows
}

// selectIfRows returns x on replicas that have rows, and y on replicas without rows. The parameter
// rows is the replica's number of rows.
func selectIfRows(rows, x, y *graph.Node) *graph.Node {
	return graph.Where(graph.GreaterThan(rows, graph.ZerosLike(rows)), x, y)
}

// computeGradients returns the gradients of the replica's loss with respect to the trained
// variables. On a replica without rows the gradients are zero.
func (t *trainer) computeGradients(loss *graph.Node) []*graph.Node {
	rows, _ := engine.Internal(t.rc).RowCounts()
	t.moveProxiesToEnd()
	trained := t.trainedVariables()
	var nodes []*graph.Node
	for _, v := range trained {
		nodes = append(nodes, v.NodeValue(t.graph))
	}
	var gradients []*graph.Node
	if len(t.slices) > 0 {
		gradients = t.computeSliceGradients(loss, trained, nodes)
	} else {
		gradients = graph.Gradient(loss, nodes...)
	}
	for i, gradient := range gradients {
		if rows != nil && t.slices[trained[i].Path()] == nil { // slicing has masked the others
			gradients[i] = selectIfRows(rows, gradient, graph.ZerosLike(gradient))
		}
	}
	return gradients
}

// computeSliceGradients returns the gradients of the loss with respect to the trained variables,
// whose values are nodes. For a variable in t.slices the gradient is already summed over the
// replicas, and the result is the replica's shard of the sum.
func (t *trainer) computeSliceGradients(loss *graph.Node, trained []*model.Variable,
	nodes []*graph.Node) []*graph.Node {
	at := map[int]int{} // index of each variable's shard in nodes
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
		if reached[nodes[i]] { // it is also read outside the loop
			gradients[i] = graph.Add(gradients[i], spmd.ReduceScatterShard(whole, t.gradientShard(v), t.placementOf(v).split))
		}
	}
	return gradients
}
