package loop

import (
	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/ml/model"
	"github.com/gomlx/gomlx/ml/train"
)

// lossSum is a sum of losses that GoMLX stores as a parameter of the graph: the regularization loss
// or the main loss.
type lossSum struct {
	graph *graph.Graph
	name  string
	path  string
	outer *graph.Node // sum before the loop
	zero  *graph.Node // initial sum inside a layer
}

func newLossSums(g *graph.Graph) []*lossSum {
	all := []*lossSum{{name: "regularization loss", path: train.TrainerRegularizationLossGraphParamKey},
		{name: "main loss", path: train.TrainerMainLossGraphParamKey}}
	for _, l := range all {
		l.graph, l.path = g, model.JoinPath(train.TrainerAbsoluteScope, l.path)
		l.outer = l.current()
	}
	return all
}

func (l *lossSum) current() *graph.Node {
	value, _ := model.GetGraphParam(l.graph, l.path)
	node, _ := value.(*graph.Node)
	return node
}

// startLayer resets the sum before a layer is traced. An existing sum is set to zero, because a
// parameter cannot be removed from a graph.
func (l *lossSum) startLayer() {
	l.zero = nil
	if now := l.current(); now != nil {
		l.zero = graph.ScalarZero(l.graph, now.DType())
		model.SetGraphParam(l.graph, l.path, l.zero)
	}
}

// layerSum returns the loss that the layer added to the sum, or nil if the layer added no loss.
func (l *lossSum) layerSum() *graph.Node {
	if now := l.current(); now != l.zero {
		return now
	}
	return nil
}

// restore sets the sum to its value before the loop.
func (l *lossSum) restore() {
	if l.outer != nil {
		model.SetGraphParam(l.graph, l.path, l.outer)
	}
}

// addTotal adds the sum over all layers to the sum before the loop.
func (l *lossSum) addTotal(sum *graph.Node) {
	if l.outer != nil {
		sum = graph.Add(l.outer, sum)
	}
	model.SetGraphParam(l.graph, l.path, sum)
}
