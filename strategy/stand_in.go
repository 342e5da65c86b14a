package strategy

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/ml/model"
	"github.com/gomlx/gomlx/ml/model/initializer"

	"github.com/tpustrategy/tpustrategy/strategy/internal/fault"
)

// GoMLX's optimizers know the variables of a store. So a training step that reads a variable of the
// scope gives it a stand-in in its store for the time of the trace: a variable whose parameter is
// the captured variable's own. What the optimizer writes to the stand-in is written to the
// variable, and the optimizer's state for it stays in the store under the stand-in's path.

// trainedScope is where the stand-ins are.
const trainedScope = "/distributed"

// Trains reports whether a training step trains the variable if its loss reads it: whether the
// variable is a float, mirrored and trainable.
func (v *Variable) Trains() bool {
	return v.trainable && v.synchronization == OnWrite && (v.dtype.IsFloat() || v.dtype.IsComplex())
}

// standIn gives a captured variable its stand-in, if the step trains it.
func (rc *ReplicaContext) standIn(op string, c *captured) {
	v := c.variable
	if !rc.training {
		return
	}
	if v.trainable && v.synchronization == OnRead {
		panic(fault.New(ValueError, fmt.Sprintf("%s %q", op, v.path), "make it with OnWrite, or leave VariableOptions.Trainable unset",
			"a training step cannot train a variable whose components differ: it is trainable and OnRead"))
	}
	if !v.Trains() {
		return
	}
	store := rc.scope.Store()
	path := standInPath(v.path)
	for n, first := 2, path; rc.standingIn(path) != nil; n++ {
		path = fmt.Sprintf("%s_%d", first, n)
	}
	if store.GetVariable(path) != nil {
		panic(fault.New(ValueError, fmt.Sprintf("%s %q", op, v.path), "give one of them another name",
			"the store has a variable at %q, which is where training steps keep what belongs to it", path))
	}
	c.standIn = store.VariableWithShape(path, v.Shape(), initializer.Zero).SetTrainable(true)
	c.name = path
	rc.strategy.Variables(store).trains(path, v)
}

// standInPath is where the stand-in of a variable of this name is, if no other has it.
func standInPath(name string) string { return trainedScope + "/" + strings.Trim(name, "/") }

// trains says that a stand-in's path stands for a variable of the scope.
func (vs *Variables) trains(path string, v *Variable) {
	vs.mu.Lock()
	defer vs.mu.Unlock()
	if vs.trained == nil {
		vs.trained = map[string]*Variable{}
	}
	vs.trained[path] = v
}

// standingIn returns the captured variable that a path of the store stands in for.
func (rc *ReplicaContext) standingIn(path string) *captured {
	i := slices.IndexFunc(rc.captured, func(c *captured) bool { return c.standIn != nil && c.standIn.Path() == path })
	if i < 0 {
		return nil
	}
	return rc.captured[i]
}

// takeTrained writes to the captured variables what was written to their stand-ins.
func (rc *ReplicaContext) takeTrained() {
	for _, c := range rc.captured {
		if c.standIn != nil && c.standIn.ChangedInGraph(rc.graph) {
			c.now, c.changed = c.standIn.NodeValue(rc.graph), true
		}
	}
}

// settleStandIns puts the stand-ins behind the store's own variables, in the order in which they
// were captured. The first trace makes the store's variables between them, later ones find them
// made: an optimizer must come to all in one order, for one text.
func (rc *ReplicaContext) settleStandIns() {
	store := rc.scope.Store()
	rc.dropStandIns()
	for _, c := range rc.captured {
		if c.standIn != nil { // its nodes are the graph's, by its path
			c.standIn = store.VariableWithShape(c.standIn.Path(), c.variable.Shape(), initializer.Zero).SetTrainable(true)
		}
	}
}

// dropStandIns removes the stand-ins from the store.
func (rc *ReplicaContext) dropStandIns() {
	for _, c := range rc.captured {
		if c.standIn != nil {
			_ = rc.scope.Store().DeleteVariable(c.standIn.Path())
		}
	}
}

// gradients are the gradients of the replica's loss, zeros where it has no rows: what has no rows
// has no mean, nor gradients of it. names are the variables that they are for.
func (rc *ReplicaContext) gradients(loss *graph.Node) (gradients []*graph.Node, names []string) {
	rows, _ := rc.rows()
	rc.settleStandIns()
	if len(rc.slices) > 0 {
		gradients = rc.gradientsOfParts(loss)
	} else {
		var nodes []*graph.Node
		for _, v := range rc.trainedVariables() {
			nodes = append(nodes, v.NodeValue(rc.graph))
		}
		gradients = graph.Gradient(loss, nodes...)
	}
	if rows != nil {
		trained := rc.trainedVariables()
		for i, gradient := range gradients {
			if rc.slices[trained[i].Path()] != nil {
				continue // slicing has seen to it
			}
			gradients[i] = rc.ifRows(rows, gradient, graph.ZerosLike(gradient))
		}
	}
	return gradients, rc.trainedNames()
}

// kept is a variable's value after the step: the new one if the step is taken.
func (rc *ReplicaContext) kept(value, old *graph.Node) *graph.Node {
	if rc.taken == nil || value == old {
		return value
	}
	return graph.Where(rc.taken, value, old)
}

// trainedNames are the variables that the step's gradients are for, in their order.
func (rc *ReplicaContext) trainedNames() (names []string) {
	for _, v := range rc.trainedVariables() {
		names = append(names, rc.pathOf(v.Path()))
	}
	return names
}

// trainedLike returns the variable of the scope whose optimizer state a variable of the store is,
// if it has its shape: it is laid out like it.
func (vs *Variables) trainedLike(source *model.Variable) *Variable {
	vs.mu.Lock()
	defer vs.mu.Unlock()
	longest := ""
	for path := range vs.trained {
		if len(path) > len(longest) && strings.Contains(source.Path(), path) {
			longest = path
		}
	}
	if v := vs.trained[longest]; v != nil && slices.Equal(v.shape, source.Shape().Dimensions) {
		return v
	}
	return nil
}

// paramOf makes the parameter that a captured variable is.
func (rc *ReplicaContext) paramOf(c *captured) *graph.Node {
	if c.standIn != nil {
		return c.standIn.NodeValue(rc.graph)
	}
	return graph.Parameter(rc.graph, c.name, c.variable.Shape())
}
