package strategy

import (
	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/ml/model"

	"github.com/tpustrategy/tpustrategy/internal/region"
)

// StateOf is the path below which a training step keeps what belongs to a variable of the scope.
func (m *replicaMachine) StateOf(v *Variable) string { return standInPath(v.path) }

// Show makes x what the step's code reads of a variable of the scope, until restore is called.
func (m *replicaMachine) Show(v *Variable, x *graph.Node) (restore func()) {
	c := m.context().capture("Read", v)
	was := c.now
	c.now = region.Leaf(m.graph.Backend().(region.Target), x)
	return func() { c.now = was }
}

// ShowModel makes x what layers see of a variable of the store, until restore is called.
func (m *replicaMachine) ShowModel(v *model.Variable, x *graph.Node) (restore func()) {
	was := v.NodeValue(m.graph)
	v.SetNodeValue(region.Leaf(m.graph.Backend().(region.Target), x))
	return func() { v.SetNodeValue(was) }
}

// Overwrite writes x, which is the same on all replicas, to a variable of the scope.
func (m *replicaMachine) Overwrite(v *Variable, x *graph.Node) {
	rc := m.context()
	rc.set("Assign", rc.capture("Assign", v), x, func(_, x *graph.Node) *graph.Node { return x })
}
