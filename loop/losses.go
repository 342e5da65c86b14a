package loop

import (
	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/ml/model"
	"github.com/gomlx/gomlx/ml/train"
)

// loss is a sum that GoMLX keeps for a graph and that layers add to.
type loss struct {
	graph *graph.Graph
	name  string
	path  string
	outer *graph.Node // what was added before the loop
	zero  *graph.Node // what the layers add to
}

func newLosses(g *graph.Graph) []*loss {
	all := []*loss{{name: "regularization loss", path: train.TrainerRegularizationLossGraphParamKey}, {name: "main loss", path: train.TrainerMainLossGraphParamKey}}
	for _, l := range all {
		l.graph, l.path = g, model.JoinPath(train.TrainerAbsoluteScope, l.path)
		l.outer = l.now()
	}
	return all
}

// now is the sum so far, nil without one.
func (l *loss) now() *graph.Node {
	value, _ := model.GetGraphParam(l.graph, l.path)
	node, _ := value.(*graph.Node)
	return node
}

// begin begins a sum of the layer's own. A sum that there is, of the step or of a trace that was
// given up, cannot be taken away.
func (l *loss) begin() {
	l.zero = nil
	if now := l.now(); now != nil {
		l.zero = graph.ScalarZero(l.graph, now.DType())
		model.SetGraphParam(l.graph, l.path, l.zero)
	}
}

// inside is what the layer added, nil for nothing.
func (l *loss) inside() *graph.Node {
	if now := l.now(); now != l.zero {
		return now
	}
	return nil
}

// restore sets the sum to what it was outside.
func (l *loss) restore() {
	if l.outer != nil {
		model.SetGraphParam(l.graph, l.path, l.outer)
	}
}

// add adds what all layers added.
func (l *loss) add(sum *graph.Node) {
	if l.outer != nil {
		sum = graph.Add(l.outer, sum)
	}
	model.SetGraphParam(l.graph, l.path, sum)
}
