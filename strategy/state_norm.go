package strategy

import (
	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/graph"

	"github.com/tpustrategy/tpustrategy/lowering/module"
)

// Norms returns the global norm of each set of tensors: the root of the sum of the squares of all
// their elements, a scalar that is the same on all replicas, of float32, or float64 if one of the
// tensors is. A set has a tensor for each trained variable, in the order of Gradients: one of
// MeanGradients, or of Trained. Of parts each replica adds up its own, without their padding, and
// one all-reduce brings the sums of all sets together; without parts there is none.
func (m innerContext) Norms(sets ...[]*graph.Node) []*graph.Node {
	rc, trained := m.ReplicaContext, m.trainedVariables()
	dtype := dtypes.Float32
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
		whole[s], parts[s] = rc.constant(dtype, 0), rc.constant(dtype, 0)
		for i, x := range set {
			over := rc.stateOver(trained[i])
			if !over.Is() {
				whole[s] = graph.Add(whole[s], graph.ReduceAllSum(squares(x, dtype)))
				continue
			}
			cut = true
			parts[s] = graph.Add(parts[s], graph.ReduceAllSum(rc.withoutPadding(squares(x, dtype), over)))
		}
	}
	norms := make([]*graph.Node, len(sets))
	if cut {
		all := module.AllReduce(graph.Stack(parts, 0), module.Sum)
		for s := range sets {
			whole[s] = graph.Add(whole[s], graph.Reshape(graph.Slice(all, graph.AxisElem(s))))
		}
	}
	for s := range sets {
		norms[s] = graph.Sqrt(whole[s])
	}
	return norms
}

// Trained returns what the trained variables are at this point of the step, in the order of
// Gradients: the replica's parts of those whose state is in parts, without communication.
func (m innerContext) Trained() (values []*graph.Node) {
	rc := m.ReplicaContext
	for _, v := range rc.trainedVariables() {
		x := v.NodeValue(rc.graph)
		if over := rc.stateOver(v); over.Is() {
			x = rc.partOf(v, x, over)
		}
		values = append(values, x)
	}
	return values
}

// squares are those of the elements' absolute values.
func squares(x *graph.Node, dtype dtypes.DType) *graph.Node {
	if x.DType().IsComplex() {
		return graph.Add(squares(graph.Real(x), dtype), squares(graph.Imag(x), dtype))
	}
	return graph.Square(graph.ConvertDType(x, dtype))
}

// withoutPadding is a replica's part with zeros for what pads it.
func (rc *ReplicaContext) withoutPadding(part *graph.Node, over module.Over) *graph.Node {
	size := over.Part(rc.strategy.replicas)
	if size*rc.strategy.replicas == over.Size {
		return part
	}
	at := graph.Iota(rc.graph, shapes.Make(dtypes.Int32, part.Shape().Dimensions...), over.Dim)
	left := graph.Sub(rc.constant(dtypes.Int32, float64(over.Size)), graph.Mul(rc.ReplicaIDInSyncGroup(), rc.constant(dtypes.Int32, float64(size))))
	return graph.Where(graph.LessThan(at, graph.BroadcastToDims(left, part.Shape().Dimensions...)), part, graph.ZerosLike(part))
}

// Rows returns the replica's real rows as an int32 scalar, or nil if the step's arguments have no
// padded rows. In [innerContext.Microbatches] they are a microbatch's.
func (m innerContext) Rows() *graph.Node {
	rows, _ := m.rows()
	if rows == nil && m.micro != nil {
		return m.constant(dtypes.Int32, float64(m.cut.length/m.cut.n))
	}
	return rows
}
