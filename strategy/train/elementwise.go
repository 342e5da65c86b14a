package train

import (
	"fmt"

	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/ml/model"

	"github.com/tpustrategy/tpustrategy/internal/engine"
	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/lowering/spmd"
)

// An optimizer may update shards of variables only if its update is elementwise: each element of a result
// may depend only on the same element of the variable, the gradient and the state, and on numbers that
// are equal on all replicas. An optimizer's Go code can derive a number from a tensor's shape, which the
// graph does not show. Therefore the update is traced in two temporary graphs, with global shapes and
// with the shapes of shards, and [spmd.ShardProof] compares the two. The trace with global shapes also
// creates the optimizer's state in the step's store.

// maxShardTraces is the number of sets of variables for which an update on shards is tried. Most
// optimizers need one, or two if some variables are updated with global tensors.
const maxShardTraces = 4

// proveShardUpdates determines which variables the optimizer can update shard by shard. This is
// possible if the update is elementwise, which proveShardUpdates proves by comparing a trace with
// shards and a trace with global tensors. The result over has the shards by the path of their
// variable. It is nil if the optimizer panics in a trace. The result global is the temporary graph
// of the trace with global tensors.
func (t *trainer) proveShardUpdates(gradients []*graph.Node, finite bool,
	update optimizerUpdate) (over map[string]spmd.ReplicaShard, global *graph.Graph) {
	varying := t.varyingVariables()
	over = map[string]spmd.ReplicaShard{}
	for _, v := range t.trainedVariables() {
		if o := t.gradientShard(v); o.IsSharded() && !varying[v.Path()] {
			over[v.Path()] = o
		}
	}
	global, ok := t.traceUpdate(t.store(), gradients, nil, update)
	for n := 0; ok && n < maxShardTraces && len(over) > 0; n++ {
		s := t.newShardStore(over, global)
		var local *graph.Graph
		if local, ok = t.traceUpdate(s.store, gradients, over, update); !ok {
			break
		}
		unproven := s.findUnproven(global, local, finite, varying)
		if len(unproven) == 0 {
			return over, global
		}
		for path := range unproven {
			delete(over, path)
		}
	}
	return nil, global
}

// traceUpdate traces the optimizer's update of a store's variables in a separate graph. A gradient
// has the shape of a shard if over contains the path of its variable. The result ok is false if the
// optimizer panics, for example because it uses nodes of the step's graph.
func (t *trainer) traceUpdate(store *model.Store, gradients []*graph.Node, over map[string]spmd.ReplicaShard,
	update optimizerUpdate) (g *graph.Graph, ok bool) {
	defer func() {
		if recover() != nil {
			ok = false
		}
	}()
	g = graph.NewGraph(t.graph.Backend().(*spmd.Trace).NewScratch(), "update")
	model.SetStore(g, store)
	store.SetTraining(g, t.store().IsTraining(t.graph))
	for v := range store.IterVariables() {
		if v.InUseByGraph(t.graph) {
			v.NodeValue(g)
		}
	}
	in := make([]*graph.Node, len(gradients))
	for i, v := range t.trainedVariables() {
		p, shape := t.placementOf(v), gradients[i].Shape().Clone()
		if p.over.IsSharded() && !over[v.Path()].IsSharded() {
			shape.Dimensions = p.over.UnshardedDims(shape.Dimensions)
		}
		in[i] = graph.Parameter(g, gradientName(i), shapes.Make(shape.DType, shape.Dimensions...))
	}
	t.withoutFrozen(store, func() { update(store.RootScope(), in) })
	return g, true
}

// gradientName returns the name of the graph parameter of gradient i in traceUpdate. The name differs from
// all paths of variables, which begin with a slash.
func gradientName(i int) string { return fmt.Sprintf("gradient %d", i) }

// varyingVariables returns the paths of the variables whose values may differ between replicas at
// this point of the step. They include the random number state.
func (t *trainer) varyingVariables() map[string]bool {
	all := map[string]bool{model.JoinPath("/", model.RNGStateVariableName): true}
	var paths []string
	var nodes []*graph.Node
	for v := range t.store().IterVariables() {
		if v.ChangedInGraph(t.graph) {
			paths, nodes = append(paths, v.Path()), append(nodes, v.NodeValue(t.graph))
		}
	}
	for i, varies := range engine.Internal(t.rc).IsVarying(nodes...) {
		if varies {
			all[paths[i]] = true
		}
	}
	return all
}

// findUnproven returns the paths of the variables in s.shards that the optimizer cannot safely
// update shard by shard, because the update is not proven to be elementwise. global is the graph of
// traceUpdate with global tensors, and local is its graph with the store of s.
func (s *shardStore) findUnproven(global, local *graph.Graph, finite bool, varying map[string]bool) map[string]bool {
	leaves, owners := map[string]spmd.ShardedParameter{}, map[string]string{}
	for path := range varying {
		leaves[path] = spmd.ShardedParameter{ReplicaVarying: true}
	}
	for path, x := range s.shardedStates(local) {
		leaves[path], owners[path] = spmd.ShardedParameter{ReplicaShard: x.over}, x.variable.Path()
	}
	of := map[string]spmd.ReplicaShard{}
	for _, x := range s.shards {
		path := x.variable.Path()
		of[path] = x.over
		leaves[path], owners[path] = spmd.ShardedParameter{ReplicaShard: x.over}, path
	}
	for i, v := range s.trainedVariables() {
		leaves[gradientName(i)], owners[gradientName(i)] = spmd.ShardedParameter{ReplicaShard: of[v.Path()],
			Finite: finite}, v.Path()
	}
	proof, err := spmd.NewShardProof(global, local, leaves)
	if err != nil {
		panic(err)
	}
	changed := map[string][2]*graph.Node{}
	for side, trace := range []struct {
		store *model.Store
		graph *graph.Graph
	}{{s.trainer.store(), global}, {s.store, local}} {
		for v := range trace.store.IterVariables() {
			if v.ChangedInGraph(trace.graph) {
				pair := changed[v.Path()]
				pair[side] = v.NodeValue(trace.graph)
				changed[v.Path()] = pair
			}
		}
	}
	all := map[string]bool{}
	for path, pair := range changed {
		if isProven(proof, pair, leaves[path].ReplicaShard) {
			continue
		}
		names := []string{path, logical.OwnerOfState(path, s.isTrained)}
		for _, node := range pair {
			if node != nil {
				names = append(names, parametersOf(proof, node)...)
			}
		}
		found := false
		for _, name := range names {
			if owner := owners[name]; of[owner].IsSharded() {
				all[owner], found = true, true
			} else if of[name].IsSharded() {
				all[name], found = true, true
			}
		}
		if !found { // Go code may derive the result from the shape of any variable
			for path := range of {
				all[path] = true
			}
		}
	}
	return all
}

// isProven reports whether the update of a variable is proven to be elementwise. pair has the
// variable's new value in the trace with global tensors and in the trace with shards. A value is
// nil if the optimizer does not update the variable.
func isProven(proof *spmd.ShardProof, pair [2]*graph.Node, over spmd.ReplicaShard) bool {
	if pair[0] == nil || pair[1] == nil {
		return false
	}
	ok, err := proof.IsElementwise(pair[0], pair[1], over)
	if err != nil {
		panic(err)
	}
	return ok
}

func parametersOf(proof *spmd.ShardProof, node *graph.Node) []string {
	names, err := proof.ParametersOf(node)
	if err != nil {
		panic(err)
	}
	return names
}
