package manual_test

import (
	"errors"
	"testing"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/gobackend"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/graph"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/lowering/manual"
	"github.com/tpustrategy/tpustrategy/lowering/spmd"
	"github.com/tpustrategy/tpustrategy/sharding"
)

// caught runs f and returns the error with which it panics.
func caught(f func()) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = r.(error)
		}
	}()
	f()
	return nil
}

// run runs f on one argument.
func run(axes []string, in manual.Arg, out sharding.Spec, f func(x *graph.Node) *graph.Node) *graph.Node {
	return manual.Region(axes, []manual.Arg{in}, []sharding.Spec{out}, func(in []*graph.Node) []*graph.Node {
		return []*graph.Node{f(in[0])}
	})[0]
}

// over runs f on shards of x over axes.
func over(x *graph.Node, axes []string, out sharding.Spec, f func(x *graph.Node) *graph.Node) *graph.Node {
	return run(axes, manual.In(x, axes), out, f)
}

func TestRegionErrors(t *testing.T) {
	whole, cut := sharding.P(), sharding.P("expert")
	both := []string{"expert", "model"}
	experts := both[:1]
	same := func(x *graph.Node) *graph.Node { return x }
	none := func([]*graph.Node) []*graph.Node { return nil }
	index := func(x *graph.Node) *graph.Node { return manual.Index(x.Graph()) }
	inside := func(f func(x *graph.Node) *graph.Node) func(x *graph.Node) {
		return func(x *graph.Node) { over(x, experts, cut, f) }
	}
	for name, c := range map[string]struct {
		step func(x *graph.Node)
		want string
	}{
		"an axis that is not there": {func(x *graph.Node) { over(x, []string{"stage"}, whole, same) },
			`axis "stage": the replica does not have it; use one of expert=4,model=2`},
		"an axis named twice": {func(x *graph.Node) { over(x, []string{"model", "model"}, whole, same) },
			`axis "model": it is used twice`},
		"no axes":        {func(x *graph.Node) { over(x, []string{}, whole, same) }, "the list of axes is empty"},
		"no arguments":   {func(*graph.Node) { manual.Region(nil, nil, nil, nil) }, "there are no arguments"},
		"a nil argument": {func(*graph.Node) { over(nil, experts, whole, same) }, "the node is nil"},
		"another nil argument": {func(x *graph.Node) { manual.Region(nil, []manual.Arg{manual.In(x), {}}, nil, none) },
			"argument 1: it is not a node of this graph"},
		"no function": {func(x *graph.Node) { manual.Region(nil, []manual.Arg{manual.In(x)}, nil, nil) },
			"manual: the function is nil"},
		"another number of results": {func(x *graph.Node) {
			manual.Region(nil, []manual.Arg{manual.In(x)},
				[]sharding.Spec{whole}, none)
		},
			"returns 0 results, but out has 1 specs"},
		"a nil result": {inside(func(*graph.Node) *graph.Node { return nil }), "result 0: it is nil"},
		"shards that do not divide": {func(x *graph.Node) { over(x, both, whole, same) },
			"dimension 0 of size 12 is not divisible into 8 shards (expert, model); pad the dimension to 16"},
		"a spec of more dimensions": {func(x *graph.Node) { run(experts, manual.In(x, nil, nil, "expert"), whole, same) },
			"has 3 dimensions"},
		"an argument's axis, no region": {func(x *graph.Node) { run(experts, manual.In(x, "model"), whole, same) },
			`over axis "model", over which the region is not manual`},
		"an argument's axis, unknown": {func(x *graph.Node) { run(experts, manual.In(x, "stage"), whole, same) },
			`over axis "stage", which the replica does not have`},
		"an argument's axis twice": {func(x *graph.Node) { run(experts, manual.In(x, "expert", "expert"), whole, same) },
			`names axis "expert" twice`},
		"an argument's part of no kind": {func(x *graph.Node) { run(experts, manual.In(x, 3), whole, same) }, "not int"},
		"an open spec": {func(x *graph.Node) { run(experts, manual.In(x, sharding.OpenDim()), whole, same) },
			"dimension 0 of its spec \"?\" is open"},
		"a spec with replicated axes": {func(x *graph.Node) {
			run(experts, manual.Arg{Node: x, Spec: sharding.P().WithReplicated("model")}, whole, same)
		}, "remove them"},
		"a result of fewer dimensions": {inside(func(x *graph.Node) *graph.Node { return graph.ReduceAllSum(x) }),
			"result 0 of shape []: its spec \"expert\" has 1 dimensions"},
		"a result that differs": {func(x *graph.Node) { over(x, experts, whole, same) },
			"result 0 of shape [3 8]: its spec does not name the axis expert"},
		"a result that differs on one axis": {func(x *graph.Node) {
			run(nil, manual.In(x, "expert", "model"), whole, func(x *graph.Node) *graph.Node {
				return manual.AllReduce(x,
					manual.Sum, "expert")
			})
		}, "does not name the axis model"},
		"the index as a result": {func(x *graph.Node) { over(x, experts, whole, index) },
			"may have different values; name the axis"},
		"a collective outside": {func(x *graph.Node) { manual.AllReduce(x, manual.Sum) },
			"manual: all_reduce of shape [12 8]: called outside of a manual region"},
		"the index outside": {func(x *graph.Node) { index(x) },
			"manual: index: called outside of a manual region"},
		"a collective over no axis here": {inside(func(x *graph.Node) *graph.Node {
			return manual.AllGather(x, 0,
				"model")
		}), `axis "model" is not manual here; name one of expert`},
		"a collective over an unknown axis": {inside(func(x *graph.Node) *graph.Node {
			return manual.AllGather(x, 0,
				"stage")
		}), `axis "stage": the replica does not have it`},
		"a collective over an axis twice": {inside(func(x *graph.Node) *graph.Node {
			return manual.Shift(x, 1, "expert",
				"expert")
		}), "it is used twice"},
		"a collective of nil": {func(*graph.Node) { manual.AllToAll(nil, 0, 0) },
			"manual: all_to_all: the node is nil"},
		"a dimension that is not there": {inside(func(x *graph.Node) *graph.Node { return manual.AllGather(x, 2) }),
			"dimension 2 of a tensor of rank 2"},
		"an exchange that does not divide": {inside(func(x *graph.Node) *graph.Node { return manual.AllToAll(x, 0, 1) }),
			"dimension 0 of size 3 is not divisible by the 4 devices of expert; pad the dimension to 4"},
		"a scatter that does not divide": {inside(func(x *graph.Node) *graph.Node { return manual.ReduceScatter(x, 0) }),
			"dimension 0 of size 3 is not divisible by the 4 devices"},
		"a permutation that receives twice": {inside(func(x *graph.Node) *graph.Node {
			return manual.Permute(x,
				[][2]int{{0, 1}, {2, 1}})
		}), "device 1 receives twice"},
		"a permutation that sends twice": {inside(func(x *graph.Node) *graph.Node {
			return manual.Permute(x,
				[][2]int{{0, 1}, {0, 2}})
		}), "device 0 sends twice"},
		"a permutation to no device": {inside(func(x *graph.Node) *graph.Node {
			return manual.Permute(x,
				[][2]int{{0, 4}})
		}), "names device 4 of 4"},
		"a broadcast from no device": {inside(func(x *graph.Node) *graph.Node { return manual.Broadcast(x, -1) }),
			"device -1 of 4"},
		"no reduction": {inside(func(x *graph.Node) *graph.Node { return manual.AllReduce(x, 9) }),
			"Reduction(9) is no reduction"},
		"a sum of bools": {inside(func(x *graph.Node) *graph.Node {
			return manual.AllReduce(graph.GreaterThan(x, graph.ZerosLike(x)), manual.Sum)
		}), "which has no sum"},
		"a mean of integers": {inside(func(x *graph.Node) *graph.Node {
			return manual.AllReduce(graph.ConvertDType(x, dtypes.Int32), manual.Mean)
		}), "is no integer"},
		"the gradient of a maximum": {func(x *graph.Node) {
			graph.Gradient(graph.ReduceAllSum(over(x, experts, whole,
				func(x *graph.Node) *graph.Node { return manual.AllReduce(x, manual.Max) })), x)
		}, "only the sum and the mean have a gradient, not max"},
		"a region in itself": {inside(func(x *graph.Node) *graph.Node { return over(x, nil, whole, same) }),
			"inside a region that is manual over expert already"},
		"the index of an outer region": {inside(func(x *graph.Node) *graph.Node {
			return run(both[1:], manual.In(x), whole, func(x *graph.Node) *graph.Node {
				return manual.Index(x.Graph(),
					"expert")
			})
		}), "the innermost region is manual over model"},
		"a node from outside": {func(x *graph.Node) {
			y := graph.Exp(x)
			over(x, experts, cut, func(*graph.Node) *graph.Node { return y })
		}, "pass it as an argument"},
		"a second derivative": {func(x *graph.Node) {
			first := graph.Gradient(graph.ReduceAllSum(over(x, experts, cut, graph.Exp)), x)[0]
			graph.Gradient(graph.ReduceAllSum(first), x)
		}, "a gradient of its gradient"},
		"a node of the region used outside": {func(x *graph.Node) {
			var y *graph.Node
			over(x, experts, cut, func(x *graph.Node) *graph.Node {
				y = graph.Exp(x)
				return y
			})
			graph.Gradient(graph.ReduceAllSum(y), x)
		}, "a node of the region that is used outside"},
		"a split in a region over all axes": {func(x *graph.Node) {
			run(nil, manual.In(x), whole, func(x *graph.Node) *graph.Node { return logical.SplitOver(x, "", "model") })
		}, "inside a manual region over all logical axes"},
		"a split over a manual axis": {func(x *graph.Node) {
			run(experts, manual.In(x), whole, func(x *graph.Node) *graph.Node { return logical.SplitOver(x, "expert", "") })
		}, "manual over the axis expert; name axes of [model] only"},
		"a split by numbers in a region": {inside(func(x *graph.Node) *graph.Node { return logical.Split(x, 1, 8) }),
			"use logical.SplitOver"},
		"an assignment in a region": {inside(func(x *graph.Node) *graph.Node { return logical.Assign(x, 0) }),
			"use logical.SplitOver"},
		"On in a region": {inside(func(x *graph.Node) *graph.Node {
			return logical.OnDevice(0, x,
				graph.Neg)
		}), "inside a region (manual)"},
		"a region in On": {func(x *graph.Node) {
			logical.OnDevice(0, x, func(x *graph.Node) *graph.Node { return over(x, experts, cut, same) })
		}, "inside a region that runs on one logical device"},
		"a collective in a function": {inside(func(x *graph.Node) *graph.Node {
			f := graph.NewFunction(x.Graph(), "f", func(g *graph.Graph) []*graph.Node {
				return []*graph.Node{manual.AllReduce(graph.Parameter(g, "y", x.Shape()), manual.Sum)}
			})
			return f.Call(x)[0]
		}), `inside function "f"`},
		"a size of no axis": {func(x *graph.Node) { manual.Size(x.Graph(), "stage") }, "the replica does not have it"},
	} {
		t.Run(name, func(t *testing.T) {
			g := graph.NewGraph(spmd.NewTrace(spmd.Options{Replicas: 2, LogicalAxes: []sharding.Axis{{Name: "expert", Size: 4},
				{Name: "model", Size: 2}}}), "step")
			err := caught(func() { c.step(graph.Parameter(g, "x", shapes.Make(dtypes.Float32, 12, 8))) })
			require.ErrorContains(t, err, c.want)
			var fault *errkind.Fault
			var placement *logical.Error
			assert.True(t, errors.As(err, &fault) || errors.As(err, &placement), "%T", err)
		})
	}
}

func TestRegionRequiresStrategyBackend(t *testing.T) {
	backend, err := gobackend.New("")
	require.NoError(t, err)
	g := graph.NewGraph(backend, "step")
	err = caught(func() { over(graph.Parameter(g, "x", shapes.Make(dtypes.Float32, 4)), nil, sharding.P(), graph.Neg) })
	require.ErrorContains(t, err, "has no logical devices; trace the step through a strategy")
}
