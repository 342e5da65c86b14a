package loop

import (
	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/ml/model"

	"github.com/tpustrategy/tpustrategy/remat"
)

// Options are the options of a loop. The zero value is a loop that keeps all that its backward pass
// reads.
type Options struct {
	// Keep says which values of each layer are kept for the backward pass, which computes the
	// others again. What is kept of n layers is n times what a layer's is.
	Keep remat.Policy
}

// Layers runs block n times, one layer after another: each gets what the one before returned, the
// first x. It returns what the last returns, which has the shape and the dtype of x.
//
// Each layer has variables of its own. block makes them as layers do, under the scope that it is
// given, and sees one layer's; the store has them stacked along a new leading dimension of size n,
// under the same paths. scope is where the stacks are: give each loop a scope of its own.
//
//	x = loop.Layers(rc.Scope("layers"), 24, x, func(scope *model.Scope, x *graph.Node) *graph.Node {
//		h := norm.LayerNorm(scope.In("norm"), x, -1).Done()
//		return graph.Add(x, layers.Dense(scope.In("dense"), h, true, width))
//	}, loop.Options{})
//
// See [Run] for what block may do, for more arguments and results, and for errors.
func Layers(scope *model.Scope, n int, x *graph.Node, block func(scope *model.Scope, x *graph.Node) *graph.Node, opts Options) *graph.Node {
	var layer func(l *Layer) Results
	if block != nil {
		layer = func(l *Layer) Results { return Results{Carried: []*graph.Node{block(l.Scope, l.Carried[0])}} }
	}
	return Run(scope, n, Arguments{Carried: []*graph.Node{x}}, layer, opts).Carried[0]
}

// Arguments are what the layers of a loop read besides their variables.
type Arguments struct {
	// Carried are the state that layers hand on: the first layer gets these.
	Carried []*graph.Node
	// Same are what all layers read: an encoder's output, a mask.
	Same []*graph.Node
	// Sliced are stacks of n, along dimension 0, of which layer i gets slice i.
	Sliced []*graph.Node
}

// Layer is what one layer is made of.
type Layer struct {
	// Scope is where the layer's variables are. Its hyperparameters are those of the loop's scope.
	Scope *model.Scope
	// Index is the layer's number, an int32 scalar from 0 to n-1. It is a value of the running
	// program: the block is traced for all layers at once.
	Index *graph.Node
	// Carried, Same and Sliced are the arguments as the layer sees them: slices have no dimension
	// of the layers.
	Carried, Same, Sliced []*graph.Node
}

// Results are what a layer returns, and what a loop does.
type Results struct {
	// Carried are the state that goes to the next layer, each of the shape and the dtype that came
	// in. A loop returns the last layer's.
	Carried []*graph.Node
	// Stacked are results of each layer, such as its keys and values. A loop returns their stacks,
	// with a new leading dimension of size n.
	Stacked []*graph.Node
	// Summed are terms of sums over the layers, such as an auxiliary loss. A loop returns the sums.
	Summed []*graph.Node
}

// Run runs block for n layers, one after another, as one loop of the program: the text and the time
// to compile it do not grow with n. The loop has a gradient, for variables and for float arguments,
// but no second one.
//
// scope is where the stacks of the variables are; it may be nil if block makes no variables and draws
// no random numbers.
//
// Run calls block a few times: it learns the layer's variables so. All calls must do the same; what
// the earlier ones make in the graph is dropped. In block:
//
//   - A variable is the layer's own, in its own shape, and each layer's first value is what its
//     initializer makes of that shape. A variable whose node value block sets is set for the layer.
//   - Random numbers are drawn from a generator of the layer's own, on each replica another. The step
//     draws once for all.
//   - Losses of train.AddRegularizationLoss and train.AddMainLoss are summed over the layers.
//   - Variables that were made outside, integers and constants may be read. Other nodes from
//     outside are arguments.
//   - Variables of the strategy may be read and written: a layer reads what the layers before it
//     wrote, and after the loop a variable has what the last layer left. A backward pass that
//     computes values again does not write again. Gradients flow through a write as they do outside.
//   - logical.Split, logical.On, collectives, remat.Block and other loops may stand.
//     train.AddPerStepUpdateGraphFn may not.
//
// n is at most 65536. Run panics with an [*errkind.Fault] that says which variable, argument or result is wrong, as
// GoMLX's graph functions panic with their errors.
func Run(scope *model.Scope, n int, arguments Arguments, block func(layer *Layer) Results, opts Options) Results {
	r := newRun(scope, n, arguments, block, opts)
	for {
		if results, ok := r.attempt(); ok {
			return results
		}
	}
}
