package strategy

import (
	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/ml/model"

	"github.com/tpustrategy/tpustrategy/lowering/module"
)

// A stacked variable of a loop over layers that is in parts enters the loop in parts: each layer
// gathers the slice that it reads, and its gradient is scattered there. So no device ever has more
// than a layer of it whole.

// slicing implements loop.Slicing.
func (rc *ReplicaContext) slicing(v *model.Variable) (stack *graph.Node, layer func(slice *graph.Node) *graph.Node) {
	vs := rc.strategy.Variables(rc.scope.Store())
	vs.mu.Lock()
	if vs.stacks == nil {
		vs.stacks = map[string]bool{}
	}
	vs.stacks[v.Path()] = true
	vs.mu.Unlock()
	over := vs.overOf(v)
	if !over.Is() || over.Dim == 0 {
		return nil, nil
	}
	// What the graph has for the variable is its parameter, or that in another dtype.
	parameter := v.NodeValue(rc.graph)
	converted := parameter.Type() == graph.NodeTypeConvertDType
	if converted {
		parameter = parameter.Inputs()[0]
	}
	if parameter.Type() != graph.NodeTypeParameter {
		return nil, nil // it was written
	}
	part := rc.slices[v.Path()]
	if part == nil {
		part = module.PartOf(parameter, over)
		rc.slices[v.Path()] = part
	}
	stack = part
	if converted {
		stack = graph.ConvertDType(part, v.NodeValue(rc.graph).DType())
	}
	rows, _ := rc.rows()
	of, split := module.Over{Dim: over.Dim - 1, Size: over.Size}, rc.stateSplit(v).Slice()
	return stack, func(slice *graph.Node) *graph.Node {
		whole := module.Whole(slice, of, split)
		if rows == nil {
			return whole
		}
		// A replica without rows has no gradients.
		return graph.IdentityWithCustomGradient(whole, func(_, adjoint *graph.Node) *graph.Node {
			return rc.ifRows(rows, adjoint, graph.ZerosLike(adjoint))
		})
	}
}

// gradientsOfParts are the gradients of the loss for the trained variables. For those of which
// layers get slices they are the replica's parts of the sum over the replicas.
func (rc *ReplicaContext) gradientsOfParts(loss *graph.Node) []*graph.Node {
	trained := rc.trainedVariables()
	var nodes []*graph.Node
	at := map[int]int{} // of the parts
	for _, v := range trained {
		nodes = append(nodes, v.NodeValue(rc.graph))
	}
	ends := map[*graph.Node]bool{}
	for i, v := range trained {
		if part := rc.slices[v.Path()]; part != nil {
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
			gradients[i] = graph.Add(gradients[i], module.ScatterPart(whole, rc.stateOver(v), rc.stateSplit(v)))
		}
	}
	return gradients
}
