package train

import (
	"slices"

	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/ml/model"
	"github.com/gomlx/gomlx/ml/model/initializer"

	"github.com/tpustrategy/tpustrategy/internal/engine"
	"github.com/tpustrategy/tpustrategy/internal/modelfields"
	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/lowering/spmd"
)

// optimizerUpdate adds an optimizer's update of a scope's variables to the graph. Gradient i
// belongs to trained variable i.
type optimizerUpdate = func(scope *model.Scope, gradients []*graph.Node)

// updateVariables applies an optimizer's update. gradients are the results of meanGradients. finite
// is true if all elements of the gradients are known to be finite.
//
// If the optimizer's state of a variable is sharded, each replica updates only its own shard of the
// variable, and the updated shards are then gathered. This is done only if proveShardUpdates proves
// that the result is the same. All other variables are updated with global gradients and global
// state.
func (t *trainer) updateVariables(gradients []*graph.Node, finite bool, update optimizerUpdate) {
	if !t.hasShardedGradients() {
		t.withoutFrozen(t.store(), func() { update(t.rc.Scope(), gradients) })
		return
	}
	over, global := t.proveShardUpdates(gradients, finite, update)
	gradients = slices.Clone(gradients)
	for i, v := range t.trainedVariables() {
		if p := t.placementOf(v); p.over.IsSharded() && !over[v.Path()].IsSharded() {
			gradients[i] = spmd.GatherShards(gradients[i], p.over, p.split)
		}
	}
	if len(over) == 0 {
		t.withoutFrozen(t.store(), func() { update(t.rc.Scope(), gradients) })
		return
	}
	s := t.newShardStore(over, global)
	wholes, parts := make([]*graph.Node, len(s.shards)), make([]*graph.Node, len(s.shards))
	for i, x := range s.shards {
		wholes[i] = x.variable.NodeValue(t.graph)
		parts[i] = engine.Internal(t.rc).ReplicaShard(x.variable, wholes[i], x.over)
		x.shadow.SetNodeValue(parts[i])
	}
	model.SetStore(t.graph, s.store)
	defer model.SetStore(t.graph, t.store())
	t.withoutFrozen(s.store, func() { update(s.store.RootScope(), gradients) })
	for path := range s.shardedStates(t.graph) {
		t.common.ShardParameters = append(t.common.ShardParameters, t.graph.GetParameterByName(path))
	}
	for i, x := range s.shards {
		if now := x.shadow.NodeValue(t.graph); now != parts[i] {
			wholes[i] = spmd.GatherShards(now, x.over, t.placementOf(x.variable).split)
			t.common.Shards[wholes[i]] = now
		}
		x.variable.SetNodeValue(wholes[i])
	}
}

// shardStore is a temporary store for an optimizer that updates shards. It has variables at the
// same paths as the step's store. Variables that are updated shard by shard have the shape of a
// replica's shard, so that the optimizer creates their state in this shape. GoMLX finds the nodes
// of a variable by its path, independent of the store.
type shardStore struct {
	*trainer
	store  *model.Store
	shards []shardVariable
}

// shardVariable is a trained variable that each replica updates only on its own shard. The field
// shadow is the variable of the shardStore that has the shape of the shard.
type shardVariable struct {
	variable, shadow *model.Variable
	over             spmd.ReplicaShard
}

// newShardStore returns a temporary store for an update of shards. over has the shards by the path
// of their variable. global is the graph of the same update with global tensors. The store omits
// optimizer state that may be sharded, because the optimizer creates this state in the shape of a
// shard.
func (t *trainer) newShardStore(over map[string]spmd.ReplicaShard, global *graph.Graph) *shardStore {
	s := &shardStore{trainer: t, store: model.NewStore()}
	for path, value := range t.store().IterParams() {
		s.store.SetParam(path, value)
	}
	for v := range t.store().IterVariables() {
		path, shape := v.Path(), v.Shape()
		if o := over[path]; o.IsSharded() {
			part := shapes.Make(shape.DType, o.ShardDims(shape.Dimensions, t.rc.NumReplicasInSync())...)
			x := s.store.VariableWithShape(path, part, initializer.Zero).SetTrainable(true)
			s.shards = append(s.shards, shardVariable{variable: v, shadow: x, over: o})
			continue
		}
		known := v.Trainable || v.InUseByGraph(t.graph) || !v.InUseByGraph(global) || shape.IsScalar()
		if owner := logical.OwnerOfState(path, t.isTrained); !known && (owner == "" || over[owner].IsSharded()) {
			continue
		}
		x := s.store.VariableWithShape(path, shape, modelfields.Initializer(v)).SetTrainable(v.Trainable)
		if value, err := v.Value(); v.HasValue() && err == nil {
			_ = x.SetValuePreservingOld(value)
		}
	}
	return s
}

// isTrained reports whether the step trains the store variable at a path.
func (t *trainer) isTrained(path string) bool {
	return slices.ContainsFunc(t.trainedVariables(), func(v *model.Variable) bool { return v.Path() == path })
}

// shardedStates returns the optimizer's state variables that the graph g uses in the shape of a
// shard. The keys are the paths of these variables.
func (s *shardStore) shardedStates(g *graph.Graph) map[string]shardVariable {
	all := map[string]shardVariable{}
	stored := map[string]*model.Variable{}
	for v := range s.trainer.store().IterVariables() {
		stored[v.Path()] = v
	}
	for x := range s.store.IterVariables() {
		path, real := x.Path(), stored[x.Path()]
		if real == nil || x.Trainable || !x.InUseByGraph(g) {
			continue
		}
		owner := func(path string) int {
			return slices.IndexFunc(s.shards, func(of shardVariable) bool {
				return of.variable.Path() == path && slices.Equal(x.Shape().Dimensions, of.shadow.Shape().Dimensions)
			})
		}
		i := owner(logical.OwnerOfState(path, func(path string) bool { return owner(path) >= 0 }))
		if i < 0 || !slices.Equal(real.Shape().Dimensions, s.shards[i].over.UnshardedDims(x.Shape().Dimensions)) {
			continue
		}
		if over := s.shards[i].over; engine.Internal(s.rc).StoredSharding(real) == over {
			all[path] = shardVariable{variable: s.shards[i].variable, shadow: x, over: over}
		}
	}
	return all
}
