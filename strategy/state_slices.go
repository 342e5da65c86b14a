package strategy

import (
	"maps"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/ml/model"

	"github.com/tpustrategy/tpustrategy/lowering/module"
)

// A stacked variable of a loop over layers that is in parts enters the loop in parts: each layer
// gathers the slice that it reads, and its gradient is scattered there. So no device ever has more
// than a layer of it whole. Of a variable that is whole and has its state in parts the gradient
// alone is treated so.

// slicing implements loop.Slicing.
func (rc *ReplicaContext) slicing(v *model.Variable) (stacks []*graph.Node, layer func(slices []*graph.Node) *graph.Node) {
	vs := rc.strategy.Variables(rc.scope.Store())
	vs.mu.Lock()
	if vs.stacks == nil {
		vs.stacks = map[string]bool{}
	}
	vs.stacks[v.Path()] = true
	vs.mu.Unlock()
	// What the graph has for the variable is its parameter, or that in another dtype.
	value := v.NodeValue(rc.graph)
	parameter := value
	if value.Type() == graph.NodeTypeConvertDType {
		parameter = value.Inputs()[0]
	}
	if parameter.Type() != graph.NodeTypeParameter {
		return nil, nil // it was written
	}
	if over := vs.overOf(v); over.Is() && over.Dim > 0 {
		return rc.gathered(v, parameter, over)
	}
	// Gradients of microbatches are added up before they cross the replicas.
	if rc.training && rc.trains(v) && rc.micro == nil {
		if over := rc.stateOver(v); over.Is() && over.Dim > 0 {
			return rc.scattered(v, parameter, over)
		}
	}
	return nil, nil
}

// gathered are the slices of a stack that is in parts: a layer gathers its own.
func (rc *ReplicaContext) gathered(v *model.Variable, parameter *graph.Node, over module.Over) ([]*graph.Node, func(slices []*graph.Node) *graph.Node) {
	part := rc.slices[v.Path()]
	if part == nil {
		part = module.PartOf(parameter, over)
		rc.slices[v.Path()] = part
	}
	of, split := module.Over{Dim: over.Dim - 1, Size: over.Size}, rc.stateSplit(v).Slice()
	rows, _ := rc.rows()
	return []*graph.Node{graph.ConvertDType(part, v.NodeValue(rc.graph).DType())}, func(slices []*graph.Node) *graph.Node {
		whole := module.Whole(slices[0], of, split)
		if rows == nil {
			return whole
		}
		// A replica without rows has no gradients.
		return graph.IdentityWithCustomGradient(whole, func(_, adjoint *graph.Node) *graph.Node {
			return rc.ifRows(rows, adjoint, graph.ZerosLike(adjoint))
		})
	}
}

// scattered are the slices of a stack that each replica has whole while its gradient is in parts: a
// layer scatters the gradient of its own.
func (rc *ReplicaContext) scattered(v *model.Variable, parameter *graph.Node, over module.Over) ([]*graph.Node, func(slices []*graph.Node) *graph.Node) {
	part := rc.slices[v.Path()]
	if part == nil {
		part = module.PartGradient(parameter, over)
		rc.slices[v.Path()] = part
	}
	of, split := module.Over{Dim: over.Dim - 1, Size: over.Size}, rc.stateSplit(v).Slice()
	rows, _ := rc.rows()
	whole := graph.StopGradient(v.NodeValue(rc.graph))
	rc.looped[whole] = true
	return []*graph.Node{whole, part}, func(slices []*graph.Node) *graph.Node {
		return module.GradientTo(slices[1], slices[0], func(adjoint *graph.Node) *graph.Node {
			if rows != nil { // a replica without rows has no gradients
				adjoint = rc.ifRows(rows, adjoint, graph.ZerosLike(adjoint))
			}
			in := rc.reduceIn
			if in == dtypes.InvalidDType {
				in = part.DType()
			}
			return graph.ConvertDType(module.ScatterPart(graph.ConvertDType(adjoint, in), of, split), part.DType())
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
	ends := maps.Clone(rc.looped)
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
