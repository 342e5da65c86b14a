package strategy

import (
	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/ml/model"

	"github.com/tpustrategy/tpustrategy/internal/region"
)

func (m innerContext) StateOf(v *Variable) string { return standInPath(v.path) }

// Show makes x what the step's code reads of a variable of the scope, until restore is called.
func (m innerContext) Show(v *Variable, x *graph.Node) (restore func()) {
	c := m.capture("Read", v)
	was := c.now
	c.now = region.Leaf(m.graph.Backend().(region.Target), x)
	return func() { c.now = was }
}

// ShowModel makes x what layers see of a variable of the store, until restore is called.
func (m innerContext) ShowModel(v *model.Variable, x *graph.Node) (restore func()) {
	was := v.NodeValue(m.graph)
	v.SetNodeValue(region.Leaf(m.graph.Backend().(region.Target), x))
	return func() { v.SetNodeValue(was) }
}

// Overwrite writes x, which is the same on all replicas, to a variable of the scope.
func (m innerContext) Overwrite(v *Variable, x *graph.Node) {
	rc := m.ReplicaContext
	rc.set("Assign", rc.capture("Assign", v), x, func(_, x *graph.Node) *graph.Node { return x })
}
