package pipeline

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/gomlx/gomlx/core/graph"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/lowering/loop"
	"github.com/tpustrategy/tpustrategy/lowering/manual"
	"github.com/tpustrategy/tpustrategy/lowering/remat"
	"github.com/tpustrategy/tpustrategy/sharding"
)

// Options configures [Run].
type Options struct {
	// Microbatches is the number of microbatches. It must divide the batch size. 0 means one
	// microbatch for each stage.
	Microbatches int
	// Keep selects the values of each round that are kept for the backward pass; the others are
	// recomputed. The zero value keeps all values that the backward pass reads.
	Keep remat.Policy
}

// Stage computes a stage of the model on the microbatch x. The result must have the shape and dtype
// of x. weights are the shards of the weights on the device.
type Stage func(x *graph.Node, weights []*graph.Node) *graph.Node

// Run runs the stages of a model on the devices of a logical axis, one stage per device. x is the
// batch of the replica, with the examples along dimension 0. Each tensor in weights is divided
// among the stages along dimension 0, which must be divisible by the size of the axis. The result
// is the result of the last stage for the complete batch, on all devices. On an axis of size 1, the
// stage processes one microbatch after another.
//
// Run panics with an [*errkind.Fault].
func Run(axis string, x *graph.Node, weights []*graph.Node, stage Stage, opts Options) *graph.Node {
	if x == nil || x.Rank() == 0 {
		fail("the batch is nil or a scalar", "pass [batch, ...]")
	}
	if stage == nil {
		fail("the stage is nil", "pass the function that computes a stage")
	}
	n := manual.Size(x.Graph(), axis)
	m, rows := cmp.Or(opts.Microbatches, n), x.Shape().Dimensions[0]
	if m < 1 || rows%m != 0 || rows == 0 {
		fail(fmt.Sprintf("%d microbatches of a batch of %d rows", m, rows),
			"use a number of microbatches that divides the batch size")
	}
	in := []manual.Arg{manual.In(x)}
	for i, w := range weights {
		if w == nil || w.Rank() == 0 || w.Shape().Dimensions[0]%n != 0 {
			fail(fmt.Sprintf("weights %d are %v for %d stages", i, w, n),
				"use a dimension 0 that the number of stages divides")
		}
		in = append(in, manual.In(w, axis))
	}
	return manual.Region([]string{axis}, in, []sharding.Spec{sharding.P()}, func(in []*graph.Node) []*graph.Node {
		return []*graph.Node{runRounds(axis, n, m, in[0], in[1:], stage, opts.Keep)}
	})[0]
}

// runRounds runs the device's stage in a loop of rounds and returns the results of the last stage.
// In each round, the stage computes one microbatch, and the device sends the activations to the
// next stage.
func runRounds(axis string, stages, microbatches int, x *graph.Node, weights []*graph.Node, stage Stage,
	keep remat.Policy) *graph.Node {
	dims := x.Shape().Dimensions
	parts := graph.Reshape(x, slices.Concat([]int{microbatches, dims[0] / microbatches}, dims[1:])...)
	first := graph.Squeeze(graph.SliceAxis(parts, 0, graph.AxisElem(0)), 0)
	last := graph.SliceAxis(parts, 0, graph.AxisRange(microbatches-1, microbatches))
	fed := []*graph.Node{parts}
	for range stages - 1 { // the first stage repeats the last microbatch until the other stages have finished
		fed = append(fed, graph.StopGradient(last))
	}
	var next [][2]int
	for i := range stages - 1 {
		next = append(next, [2]int{i, i + 1})
	}
	begins := graph.Equal(manual.Index(x.Graph(), axis), graph.Const(x.Graph(), int32(0)))
	made := loop.Run(nil, microbatches+stages-1, loop.Arguments{
		Carried: []*graph.Node{graph.StopGradient(first)},
		Sliced:  []*graph.Node{graph.Concatenate(fed, 0)},
		Shared:  slices.Concat([]*graph.Node{begins}, weights),
	}, func(l *loop.Layer) loop.Results {
		came := l.Sliced[0]
		if stages > 1 {
			came = graph.Where(l.Shared[0], came, l.Carried[0])
		}
		y := stage(came, slices.Clone(l.Shared[1:]))
		if y == nil || !y.Shape().Equal(came.Shape()) {
			fail(fmt.Sprintf("a stage returns %v for %s", y, came.Shape()),
				"return the shape and the dtype of the argument")
		}
		sent := y
		if stages > 1 {
			sent = manual.Permute(y, next, axis)
		}
		return loop.Results{Carried: []*graph.Node{sent}, Stacked: []*graph.Node{y}}
	}, loop.Options{Keep: keep}).Stacked[0]
	y := graph.Reshape(graph.SliceAxis(made, 0, graph.AxisRange(stages-1, stages-1+microbatches)), dims...)
	if stages == 1 {
		return y
	}
	return manual.Broadcast(y, stages-1, axis)
}

func fail(reason, hint string) {
	panic(&errkind.Fault{Op: "pipeline", Reason: reason, Hint: hint, Class: errkind.ValueError})
}
