package train

import (
	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/ml/model"

	"github.com/tpustrategy/tpustrategy/internal/engine"
	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/lowering/spmd"
	"github.com/tpustrategy/tpustrategy/strategy"
)

// layerSlices prepares a variable that stacks the weights of several layers for a loop over the
// layers. In each iteration the loop slices the returned stacks and passes the slices to layer,
// which returns the weights of one layer. If the variable is sharded over the replicas, layer
// gathers the weights. If only its optimizer state is sharded, layer scatters the gradient. For any
// other variable both results are nil.
func (t *trainer) layerSlices(v *model.Variable) (stacks []*graph.Node, layer func(slices []*graph.Node) *graph.Node) {
	part, stacks, gather := engine.Internal(t.rc).LayerSlices(v)
	if part == nil {
		return t.gradientSlices(v)
	}
	t.slices[v.Path()] = part
	rows, _ := engine.Internal(t.rc).RowCounts()
	if rows == nil {
		return stacks, gather
	}
	return stacks, func(slices []*graph.Node) *graph.Node {
		// A replica without rows has no gradients.
		return graph.IdentityWithCustomGradient(gather(slices), func(_, adjoint *graph.Node) *graph.Node {
			return selectIfRows(rows, adjoint, graph.ZerosLike(adjoint))
		})
	}
}

// gradientSlices implements layerSlices for a replicated variable whose gradient is sharded. Within
// a microbatch it returns nil, because gradients of microbatches are summed before they are reduced
// over the replicas.
func (t *trainer) gradientSlices(v *model.Variable) (stacks []*graph.Node,
	layer func(slices []*graph.Node) *graph.Node) {
	parameter := engine.Internal(t.rc).UnwrittenParameter(v)
	if parameter == nil || t.micro != nil || !v.Trainable || !v.InUseByGraph(t.graph) || t.isFrozen(v) {
		return nil, nil
	}
	over := t.gradientShard(v)
	if !over.IsSharded() || over.Dim == 0 {
		return nil, nil
	}
	part := t.slices[v.Path()]
	if part == nil {
		part = spmd.GradientPlaceholder(parameter, over)
		t.slices[v.Path()] = part
	}
	of, split := spmd.ReplicaShard{Dim: over.Dim - 1, Size: over.Size}, t.placementOf(v).split.WithoutLeadingDim()
	rows, _ := engine.Internal(t.rc).RowCounts()
	whole := graph.StopGradient(v.NodeValue(t.graph))
	t.looped[whole] = true
	return []*graph.Node{whole, part}, func(slices []*graph.Node) *graph.Node {
		return spmd.RedirectGradient(slices[1], slices[0], func(adjoint *graph.Node) *graph.Node {
			if rows != nil { // a replica without rows has no gradients
				adjoint = selectIfRows(rows, adjoint, graph.ZerosLike(adjoint))
			}
			in := t.reduceIn
			if in == dtypes.InvalidDType {
				in = part.DType()
			}
			return graph.ConvertDType(spmd.ReduceScatterShard(graph.ConvertDType(adjoint, in), of, split), part.DType())
		})
	}
}

// meanGradients averages the gradients over the replicas. For a variable with sharded state it
// returns only the replica's shard of the average; see [logical.StateSharding].
func (t *trainer) meanGradients(gradients []*graph.Node) []*graph.Node {
	means, trained := make([]*graph.Node, len(gradients)), t.trainedVariables()
	for i, gradient := range gradients {
		over := t.gradientShard(trained[i])
		switch {
		case !over.IsSharded():
			means[i] = t.rc.AllReduce(strategy.Mean, gradient)
		case t.slices[trained[i].Path()] != nil: // already summed over the replicas
			means[i] = engine.Internal(t.rc).DivideByReplicas(gradient)
		case !t.placementOf(trained[i]).sharded.Contains(logical.Gradient):
			means[i] = spmd.SliceShard(t.rc.AllReduce(strategy.Mean, gradient), over)
		default:
			means[i] = spmd.ReduceScatterShard(engine.Internal(t.rc).DivideByReplicas(gradient), over,
				t.placementOf(trained[i]).split)
		}
	}
	return means
}

// zeroNonFinite replaces each gradient that has a non-finite element on any replica by zeros. If no
// gradient is sharded, it does nothing, because the optimizer itself replaces such gradients.
func (t *trainer) zeroNonFinite(gradients []*graph.Node) []*graph.Node {
	if !t.hasShardedGradients() {
		return gradients
	}
	flags := make([]*graph.Node, len(gradients))
	for i, gradient := range gradients {
		flags[i] = graph.ConvertDType(isFinite(gradient), dtypes.Int32)
	}
	all := spmd.AllReduce(graph.Stack(flags, 0), spmd.Min)
	clipped := make([]*graph.Node, len(gradients))
	for i, gradient := range gradients {
		ok := graph.GreaterThan(elementAt(all, i), constant(t.graph, dtypes.Int32, 0))
		clipped[i] = graph.Where(ok, gradient, graph.ZerosLike(gradient))
	}
	return clipped
}

// trainedValues returns the current values of the trained variables in the order of their gradients. For
// a variable with sharded state it returns the replica's shard, without communication.
func (t *trainer) trainedValues() (values []*graph.Node) {
	for _, v := range t.trainedVariables() {
		x := v.NodeValue(t.graph)
		if over := t.gradientShard(v); over.IsSharded() {
			x = engine.Internal(t.rc).ReplicaShard(v, x, over)
		}
		values = append(values, x)
	}
	return values
}

// globalNorms returns the global norm of each set of tensors: the square root of the sum of the
// squares of all elements. A set has one tensor for each trained variable, as returned by
// meanGradients or trainedValues. A norm is a scalar that is equal on all replicas. It is float64
// if any tensor is float64 or complex128, and otherwise float32. If tensors are sharded,
// globalNorms uses one all-reduce for all sets.
func (t *trainer) globalNorms(sets ...[]*graph.Node) []*graph.Node {
	trained, dtype := t.trainedVariables(), dtypes.Float32
	for _, set := range sets {
		for _, x := range set {
			if x.DType() == dtypes.Float64 || x.DType() == dtypes.Complex128 {
				dtype = dtypes.Float64
			}
		}
	}
	whole, parts := make([]*graph.Node, len(sets)), make([]*graph.Node, len(sets))
	cut := false
	for s, set := range sets {
		whole[s], parts[s] = constant(t.graph, dtype, 0), constant(t.graph, dtype, 0)
		for i, x := range set {
			over := t.gradientShard(trained[i])
			if !over.IsSharded() {
				whole[s] = graph.Add(whole[s], graph.ReduceAllSum(squares(x, dtype)))
				continue
			}
			cut = true
			parts[s] = graph.Add(parts[s], graph.ReduceAllSum(t.zeroPadding(squares(x, dtype), over)))
		}
	}
	if cut {
		all := spmd.AllReduce(graph.Stack(parts, 0), spmd.Sum)
		for s := range sets {
			whole[s] = graph.Add(whole[s], elementAt(all, s))
		}
	}
	for s := range sets {
		whole[s] = graph.Sqrt(whole[s])
	}
	return whole
}

// squares returns the square of the absolute value of each element of x, in the given dtype.
func squares(x *graph.Node, dtype dtypes.DType) *graph.Node {
	if x.DType().IsComplex() {
		return graph.Add(squares(graph.Real(x), dtype), squares(graph.Imag(x), dtype))
	}
	return graph.Square(graph.ConvertDType(x, dtype))
}

// zeroPadding replaces those elements of a replica's shard that are padding by zeros.
func (t *trainer) zeroPadding(part *graph.Node, over spmd.ReplicaShard) *graph.Node {
	replicas := t.rc.NumReplicasInSync()
	size := over.ShardSize(replicas)
	if size*replicas == over.Size {
		return part
	}
	number := func(n int) *graph.Node { return constant(t.graph, dtypes.Int32, float64(n)) }
	at := graph.Iota(t.graph, shapes.Make(dtypes.Int32, part.Shape().Dimensions...), over.Dim)
	left := graph.Sub(number(over.Size), graph.Mul(t.rc.ReplicaIDInSyncGroup(), number(size)))
	return graph.Where(graph.LessThan(at, graph.BroadcastToDims(left, part.Shape().Dimensions...)), part,
		graph.ZerosLike(part))
}
