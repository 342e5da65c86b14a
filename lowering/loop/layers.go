package loop

import (
	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/ml/model"

	"github.com/tpustrategy/tpustrategy/lowering/remat"
)

// Options configures a loop. With the zero value, the forward pass keeps all values that the
// backward pass reads.
type Options struct {
	// Keep selects the values of each layer that are kept for the backward pass; the others are
	// recomputed. The memory of the kept values is proportional to the number of layers.
	Keep remat.Policy
}

// Layers runs block n times. The first layer receives x, and each further layer receives the result
// of the previous layer. Layers returns the result of the last layer, which has the shape and dtype
// of x.
//
// Each layer has its own variables. block creates the variables of one layer under the scope that
// it receives. The store has the variables of all layers stacked along a new leading dimension of
// size n, under the same paths. scope is the scope of the stacked variables; each loop needs a
// different scope.
//
//	x = loop.Layers(rc.Scope("layers"), 24, x, func(scope *model.Scope, x *graph.Node) *graph.Node {
//		h := norm.LayerNorm(scope.In("norm"), x, -1).Done()
//		return graph.Add(x, layers.Dense(scope.In("dense"), h, true, width))
//	}, loop.Options{})
//
// [Run] accepts several arguments and results. Its documentation lists the operations that block
// may use, and the errors.
func Layers(scope *model.Scope, n int, x *graph.Node, block func(scope *model.Scope, x *graph.Node) *graph.Node,
	opts Options) *graph.Node {
	var layer func(l *Layer) Results
	if block != nil {
		layer = func(l *Layer) Results { return Results{Carried: []*graph.Node{block(l.Scope, l.Carried[0])}} }
	}
	return Run(scope, n, Arguments{Carried: []*graph.Node{x}}, layer, opts).Carried[0]
}

// Arguments are the inputs of a loop.
type Arguments struct {
	// Carried is the state that each layer passes to the next layer. These are the inputs of the
	// first layer.
	Carried []*graph.Node
	// Shared are inputs that are the same for all layers, such as the output of an encoder or a
	// mask.
	Shared []*graph.Node
	// Sliced are stacks with a leading dimension of size n. Layer i receives slice i.
	Sliced []*graph.Node
}

// Layer contains the inputs of one layer.
type Layer struct {
	// Scope is the scope of the layer's variables. Its hyperparameters are the hyperparameters of
	// the loop's scope.
	Scope *model.Scope
	// Index is the index of the layer, an int32 scalar from 0 to n-1. It is a value of the running
	// program, because the block is traced once for all layers.
	Index *graph.Node
	// Carried, Shared and Sliced are the arguments of the layer. Sliced arguments do not have the
	// dimension of the layers.
	Carried, Shared, Sliced []*graph.Node
}

// Results are the results of a layer, and of a loop.
type Results struct {
	// Carried is the state for the next layer, with the shapes and dtypes of the layer's inputs. A
	// loop returns the state after the last layer.
	Carried []*graph.Node
	// Stacked are results of each layer, such as its keys and values. A loop returns them stacked
	// along a new leading dimension of size n.
	Stacked []*graph.Node
	// Summed are terms of sums over the layers, such as an auxiliary loss. A loop returns the sums.
	Summed []*graph.Node
}

// Run runs block for n layers, one after another, as one loop of the program. The size of the
// program and its compile time do not depend on n. The loop has a gradient for variables and float
// arguments; this gradient cannot be differentiated again.
//
// scope is the scope of the stacked variables. It can be nil if block creates no variables and
// draws no random numbers.
//
// Run traces block several times, to determine the variables of a layer, and uses only the last
// trace. All calls of block must build the same computation. In block:
//
//   - A variable has the shape of one layer, and its initializer is called for this shape in each
//     layer. Setting the node value of a variable sets it for the layer.
//   - Random numbers differ between layers and between replicas. The step's generator advances
//     once.
//   - Losses of train.AddRegularizationLoss and train.AddMainLoss are summed over the layers.
//   - Variables, integers and constants from outside can be read. Pass other outside nodes as
//     arguments.
//   - Variables of the strategy can be read and written. A layer reads the values written by
//     earlier layers, and after the loop a variable has the value written by the last layer.
//     Recomputing in the backward pass does not repeat the writes. Gradients pass through writes as
//     outside of loops.
//   - logical.Split, logical.OnDevice, collectives, remat.Block and other loops are supported.
//     train.AddPerStepUpdateGraphFn is not supported.
//
// n must be at most 65536. Like GoMLX's graph functions, Run panics with its errors. They are
// [*errkind.Fault] values that contain the variable, argument or result.
func Run(scope *model.Scope, n int, arguments Arguments, block func(layer *Layer) Results, opts Options) Results {
	r := newLayerLoop(scope, n, arguments, block, opts)
	for {
		if results, ok := r.tryTrace(); ok {
			return results
		}
	}
}
