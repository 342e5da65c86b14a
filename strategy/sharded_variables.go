package strategy

import (
	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/ml/model"

	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/lowering/spmd"
)

// A step gathers a variable that is sharded over the replicas where it reads the variable. It stores only this
// replica's shard of a new value.

// layerSlices prepares a variable that stacks the weights of several layers, so that a loop can
// read the weights of one layer in each iteration; see [loop.Slicer]. A stack that is sharded over
// the replicas remains sharded, and each iteration gathers only the layer that it reads. A device
// therefore has at most one gathered layer at a time. The result part is this replica's shard, or
// nil if the stack is not sharded.
func (rc *ReplicaContext) layerSlices(v *model.Variable) (part *graph.Node, stacks []*graph.Node,
	layer func(slices []*graph.Node) *graph.Node) {
	vs := rc.strategy.Variables(rc.state.Scope.Store())
	vs.mu.Lock()
	if vs.stacks == nil {
		vs.stacks = map[string]bool{}
	}
	vs.stacks[v.Path()] = true
	vs.mu.Unlock()
	parameter, over := unwrittenParameter(v, rc.graph), vs.replicaShard(v)
	if parameter == nil || !over.IsSharded() || over.Dim == 0 {
		return nil, nil, nil
	}
	if part = rc.state.Slices[v.Path()]; part == nil {
		part = spmd.ParameterShard(parameter, over)
		rc.state.Slices[v.Path()] = part
	}
	a, _, _ := vs.placementByRules(v)
	of, split := spmd.ReplicaShard{Dim: over.Dim - 1, Size: over.Size}, a.WithinReplica().WithoutLeadingDim()
	return part, []*graph.Node{graph.ConvertDType(part, v.NodeValue(rc.graph).DType())},
		func(slices []*graph.Node) *graph.Node {
			return spmd.GatherShards(slices[0], of, split)
		}
}

// unwrittenParameter returns the graph parameter of a store variable, or nil if the step has
// already written the variable. The step may read the parameter in another dtype.
func unwrittenParameter(v *model.Variable, g *graph.Graph) *graph.Node {
	x := v.NodeValue(g)
	if x.Type() == graph.NodeTypeConvertDType {
		x = x.Inputs()[0]
	}
	if x.Type() != graph.NodeTypeParameter {
		return nil
	}
	return x
}

func (rc *ReplicaContext) replicaShard(v *model.Variable, value *graph.Node, over spmd.ReplicaShard) *graph.Node {
	if part := rc.state.Shards[value]; part != nil {
		return part
	}
	vs := rc.strategy.Variables(rc.state.Scope.Store())
	if value.Type() == graph.NodeTypeParameter && !vs.isProxy(v.Path()) && vs.replicaShard(v).IsSharded() {
		return spmd.ParameterShard(value, over)
	}
	return spmd.SliceShard(value, over)
}

// storedValue returns the value that the step writes back to a store variable: the complete value,
// or only this replica's shard if the variable is sharded. If the step is skipped, this is the old
// value.
func (rc *ReplicaContext) storedValue(v *model.Variable, value *graph.Node) *graph.Node {
	over := rc.strategy.Variables(rc.state.Scope.Store()).replicaShard(v)
	old := rc.graph.GetParameterByName(v.Path())
	if !over.IsSharded() || !value.Shape().Equal(v.Shape()) { // not sharded, or a shard already
		return rc.valueUnlessSkipped(value, old)
	}
	part := rc.replicaShard(v, value, over)
	if !old.Shape().Equal(v.Shape()) {
		return rc.valueUnlessSkipped(part, old)
	}
	return rc.valueUnlessSkipped(part, spmd.ParameterShard(old, over))
}

// valueUnlessSkipped returns the new value of a variable, or its old value if the program decides
// at run time to skip the step.
func (rc *ReplicaContext) valueUnlessSkipped(value, old *graph.Node) *graph.Node {
	if rc.state.Applied == nil || value == old {
		return value
	}
	return graph.Where(rc.state.Applied, value, old)
}

// gradientSharding returns how the gradient and the optimizer state of a trained variable are
// sharded: the dimension that is split over the replicas, the split over the logical devices, and
// which parts of the training state are sharded.
func (vs *Variables) gradientSharding(v *model.Variable) (over spmd.ReplicaShard, split logical.Annotation,
	sharded logical.StateParts) {
	s, path := vs.strategy, v.Path()
	vs.mu.Lock()
	like := vs.proxied[path]
	vs.mu.Unlock()
	if like != nil {
		path, split = like.path, like.annotation
	} else {
		split, _, _ = vs.placementByRules(v)
	}
	state, _ := s.opts.Variables.StateFor(path, v.Shape().Dimensions)
	sharded = state.Parts()
	if like == nil {
		over = vs.replicaShard(v)
	}
	if !over.IsSharded() {
		over = vs.stateShard(logical.OptimizerState, path, v.Shape(), like == nil && vs.isStack(path), split)
	} else if !sharded.Contains(logical.Parameter) { // the annotation splits the variable over the replicas
		sharded = logical.ShardParameters.Parts()
	}
	return over, split.WithinReplica(), sharded
}

// registerProxy registers the path of a proxy for v, a variable of NewVariable. A proxy is a
// variable of the store that represents v in a training step. The optimizer state of v is stored
// below the path of the proxy.
func (vs *Variables) registerProxy(path string, v *Variable) {
	vs.mu.Lock()
	defer vs.mu.Unlock()
	if vs.proxied == nil {
		vs.proxied = map[string]*Variable{}
	}
	vs.proxied[path] = v
}
