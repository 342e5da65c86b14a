package collectives_test

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/core/tensors"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/internal/test/plugintest"
	"github.com/tpustrategy/tpustrategy/internal/test/strategytest"
	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/lowering/ir"
	"github.com/tpustrategy/tpustrategy/lowering/manual"
	"github.com/tpustrategy/tpustrategy/lowering/spmd"
	"github.com/tpustrategy/tpustrategy/sharding"
	"github.com/tpustrategy/tpustrategy/strategy"
)

// operation is a collective with its reference implementation. The reference returns the result of
// replica or logical device r for the inputs of all devices.
type operation struct {
	name string
	of   func(d dtypes.DType) bool
	op   func(rc *strategy.ReplicaContext, x *graph.Node, n int) *graph.Node
	want func(d dtypes.DType, all []array, r int) array
}

func every(dtypes.DType) bool       { return true }
func numeric(d dtypes.DType) bool   { return d != dtypes.Bool }
func ordered(d dtypes.DType) bool   { return !d.IsComplex() }
func fractions(d dtypes.DType) bool { return !isInt(d) }

func reduction(name string, of func(dtypes.DType) bool, op func(rc *strategy.ReplicaContext,
	x *graph.Node) *graph.Node) operation {
	return operation{name, of, func(rc *strategy.ReplicaContext, x *graph.Node, _ int) *graph.Node { return op(rc, x) },
		func(d dtypes.DType, all []array, _ int) array { return combined(d, name, all...) }}
}

func odd(x *graph.Node) *graph.Node {
	rows, columns := x.Shape().Dim(0), x.Shape().Dim(1)
	return graph.Slice(x, graph.AxisRange(0, min(rows, 3)), graph.AxisRange(0, columns-columns/2-1))
}

func oddOf(a array) array {
	rows, columns := a.dims[0], a.dims[1]
	return each([]int{min(rows, 3), columns - columns/2 - 1}, func(at []int) (array, []int) { return a, at })
}

var overReplicas = []operation{
	reduction("sum", numeric, func(rc *strategy.ReplicaContext,
		x *graph.Node) *graph.Node {
		return rc.AllReduce(strategy.Sum, x)
	}),
	reduction("mean", fractions, func(rc *strategy.ReplicaContext,
		x *graph.Node) *graph.Node {
		return rc.AllReduce(strategy.Mean, x)
	}),
	reduction("max", ordered, func(_ *strategy.ReplicaContext, x *graph.Node) *graph.Node {
		return spmd.AllReduce(x,
			spmd.Max)
	}),
	reduction("min", ordered, func(_ *strategy.ReplicaContext, x *graph.Node) *graph.Node {
		return spmd.AllReduce(x,
			spmd.Min)
	}),
	{"gather 0", every, func(rc *strategy.ReplicaContext, x *graph.Node, _ int) *graph.Node { return rc.AllGather(x, 0) },
		func(_ dtypes.DType, all []array, _ int) array { return concat(0, all...) }},
	{"gather 1", every, func(rc *strategy.ReplicaContext, x *graph.Node, _ int) *graph.Node {
		return rc.AllGather(odd(x),
			1)
	},
		func(_ dtypes.DType, all []array, _ int) array { return concat(1, mapped(all, oddOf)...) }},
	{"scatter 0", numeric, func(_ *strategy.ReplicaContext, x *graph.Node,
		_ int) *graph.Node {
		return spmd.ReduceScatter(x, 0)
	},
		func(d dtypes.DType, all []array, r int) array {
			return part(combined(d, "sum", all...), 0, r, len(all))
		}},
	{"scatter 1", numeric, func(_ *strategy.ReplicaContext, x *graph.Node,
		_ int) *graph.Node {
		return spmd.ReduceScatter(x, 1)
	},
		func(d dtypes.DType, all []array, r int) array {
			return part(combined(d, "sum", all...), 1, r, len(all))
		}},
	{"broadcast", every, func(rc *strategy.ReplicaContext, x *graph.Node,
		_ int) *graph.Node {
		return rc.Broadcast(odd(x))
	},
		func(_ dtypes.DType, all []array, _ int) array { return oddOf(all[0]) }},
}

func mapped(all []array, f func(array) array) []array {
	out := make([]array, len(all))
	for i, a := range all {
		out[i] = f(a)
	}
	return out
}

func pairs(n int) (all [][2]int) { // device 0 receives nothing
	for i := range n - 1 {
		all = append(all, [2]int{i, i + 1})
	}
	return all
}

var inManual = []operation{
	reduction("sum", numeric, func(_ *strategy.ReplicaContext, x *graph.Node) *graph.Node {
		return manual.AllReduce(x,
			manual.Sum)
	}),
	reduction("mean", fractions, func(_ *strategy.ReplicaContext, x *graph.Node) *graph.Node {
		return manual.AllReduce(x,
			manual.Mean)
	}),
	reduction("max", ordered, func(_ *strategy.ReplicaContext, x *graph.Node) *graph.Node {
		return manual.AllReduce(x,
			manual.Max)
	}),
	reduction("min", ordered, func(_ *strategy.ReplicaContext, x *graph.Node) *graph.Node {
		return manual.AllReduce(x,
			manual.Min)
	}),
	{"gather 0", every, func(_ *strategy.ReplicaContext, x *graph.Node, _ int) *graph.Node {
		return manual.AllGather(x,
			0)
	},
		func(_ dtypes.DType, all []array, _ int) array { return concat(0, all...) }},
	{"gather 1", every, func(_ *strategy.ReplicaContext, x *graph.Node,
		_ int) *graph.Node {
		return manual.AllGather(odd(x), 1)
	},
		func(_ dtypes.DType, all []array, _ int) array { return concat(1, mapped(all, oddOf)...) }},
	{"scatter 1", numeric, func(_ *strategy.ReplicaContext, x *graph.Node,
		_ int) *graph.Node {
		return manual.ReduceScatter(x, 1)
	},
		func(d dtypes.DType, all []array, r int) array {
			return part(combined(d, "sum", all...), 1, r, len(all))
		}},
	{"all-to-all", every, func(_ *strategy.ReplicaContext, x *graph.Node, _ int) *graph.Node {
		return manual.AllToAll(x, 1,
			0)
	},
		func(_ dtypes.DType, all []array, r int) array {
			return concat(0, mapped(all, func(a array) array { return part(a, 1, r, len(all)) })...)
		}},
	{"permute", every, func(_ *strategy.ReplicaContext, x *graph.Node, n int) *graph.Node {
		return manual.Permute(odd(x), pairs(n))
	},
		func(_ dtypes.DType, all []array, r int) array {
			if r == 0 {
				return zeroed(oddOf(all[0]))
			}
			return oddOf(all[r-1])
		}},
	{"shift", every, func(_ *strategy.ReplicaContext, x *graph.Node, _ int) *graph.Node { return manual.Shift(x, 1) },
		func(_ dtypes.DType, all []array, r int) array { return all[(r+len(all)-1)%len(all)] }},
	{"broadcast", every, func(_ *strategy.ReplicaContext, x *graph.Node, n int) *graph.Node {
		return manual.Broadcast(odd(x), n-1)
	},
		func(_ dtypes.DType, all []array, _ int) array { return oddOf(all[len(all)-1]) }},
}

// byPartitioner are operations on a replica's tensor, which is split over its logical devices.
// XLA's partitioner converts them to collectives.
var byPartitioner = []operation{
	{"replicate", every, func(_ *strategy.ReplicaContext, x *graph.Node, n int) *graph.Node {
		return logical.Replicate(logical.Split(x, n, 1))
	}, same},
	{"resplit", every, func(_ *strategy.ReplicaContext, x *graph.Node, n int) *graph.Node {
		return logical.Split(logical.Split(x, n, 1), 1, n)
	}, same},
	{"reduce sum", numeric, func(_ *strategy.ReplicaContext, x *graph.Node, n int) *graph.Node {
		return graph.ReduceSum(logical.Split(x, n, 1), 0)
	}, rows("sum")},
	{"reduce max", ordered, func(_ *strategy.ReplicaContext, x *graph.Node, n int) *graph.Node {
		return graph.ReduceMax(logical.Split(x, n, 1), 0)
	}, rows("max")},
	{"reduce min", ordered, func(_ *strategy.ReplicaContext, x *graph.Node, n int) *graph.Node {
		return graph.ReduceMin(logical.Split(x, n, 1), 0)
	}, rows("min")},
	{"dot", numeric, func(_ *strategy.ReplicaContext, x *graph.Node, n int) *graph.Node {
		x = logical.Split(x, n, 1)
		ones := graph.ConvertDType(graph.Ones(x.Graph(), shapes.Make(dtypes.Int32, x.Shape().Dim(0), 1)), x.DType())
		return graph.Einsum("ij,ik->k", logical.Split(ones, n, 1), x)
	}, rows("sum")},
	{"reverse", every, func(_ *strategy.ReplicaContext, x *graph.Node, n int) *graph.Node {
		return logical.Split(graph.Reverse(logical.Split(x, n, 1), 0), n, 1)
	}, func(_ dtypes.DType, all []array, r int) array {
		return each(all[r].dims, func(at []int) (array, []int) { at[0] = all[r].dims[0] - 1 - at[0]; return all[r], at })
	}},
	{"slice", every, func(_ *strategy.ReplicaContext, x *graph.Node, n int) *graph.Node {
		return graph.Slice(logical.Split(x, n, 1), graph.AxisRange(1, 6), graph.AxisRange(0, 5))
	}, func(_ dtypes.DType, all []array, r int) array {
		return each([]int{5, 5}, func(at []int) (array, []int) { at[0]++; return all[r], at })
	}},
	{"concatenate", every, func(_ *strategy.ReplicaContext, x *graph.Node, n int) *graph.Node {
		return graph.Concatenate([]*graph.Node{logical.Split(x, n, 1), logical.Split(x, n, 1)}, 0)
	}, func(_ dtypes.DType, all []array, r int) array { return concat(0, all[r], all[r]) }},
	{"on", every, func(_ *strategy.ReplicaContext, x *graph.Node, n int) *graph.Node {
		return logical.OnDevice(n-1, logical.Split(x, n, 1), func(x *graph.Node) *graph.Node { return graph.Reshape(x, -1) })
	}, func(_ dtypes.DType, all []array, r int) array {
		a := all[r]
		a.dims = []int{a.dims[0] * a.dims[1]}
		return a
	}},
}

func same(_ dtypes.DType, all []array, r int) array { return all[r] }

func rows(op string) func(d dtypes.DType, all []array, r int) array {
	return func(d dtypes.DType, all []array, r int) array {
		a := all[r]
		var parts []array
		for k := range a.dims[0] {
			parts = append(parts, part(a, 0, k, a.dims[0]))
		}
		a = combined(d, op, parts...)
		a.dims = a.dims[1:]
		return a
	}
}

const rowsOf, columnsOf = 8, 24

// groups contains the operations by the set of devices over which they communicate.
var groups = map[string][]operation{"over the replicas": overReplicas, inRegion: inManual,
	"by the partitioner": byPartitioner}

const inRegion = "in a manual region"

// writable returns the dtypes that a program can have.
func writable() (all []dtypes.DType) {
	for d := dtypes.InvalidDType + 1; d <= dtypes.Uint1; d++ {
		if ir.IsSupported(d) {
			all = append(all, d)
		}
	}
	return all
}

// own returns the replica's slice of a tensor that stacks the inputs of all replicas.
func own(rc *strategy.ReplicaContext, x *graph.Node) *graph.Node {
	zero := graph.Const(x.Graph(), int32(0))
	dims := slices.Clone(x.Shape().Dimensions)
	dims[0] = 1
	return graph.Reshape(graph.DynamicSlice(x, []*graph.Node{rc.ReplicaIDInSyncGroup(), zero, zero}, dims), dims[1:]...)
}

// applied applies the operation to a replica's tensor. In a manual region, each logical device has
// a slice of the rows.
func (o operation) applied(rc *strategy.ReplicaContext, group string, x *graph.Node, p int) *graph.Node {
	if group != inRegion {
		return o.op(rc, x, p)
	}
	spec := sharding.P("logical")
	return manual.Region(nil, []manual.Arg{{Node: x, Spec: spec}}, []sharding.Spec{spec},
		func(in []*graph.Node) []*graph.Node {
			return []*graph.Node{o.op(rc, in[0], p)}
		})[0]
}

// TestCollectivesOfEveryDType compares every collective with its reference, for every dtype that a
// program can have, on five meshes. It runs in a child process, because 2-bit integers once
// corrupted the memory of the process.
func TestCollectivesOfEveryDType(t *testing.T) {
	plugintest.Path(t, "cpu")
	if !plugintest.InChild(t) {
		out, err := plugintest.Child(t)
		require.NoError(t, err, out)
		t.Log(out)
		return
	}
	checked := 0
	for _, m := range [][2]int{{2, 1}, {8, 1}, {4, 2}, {1, 8}, {2, 4}} {
		r, p := m[0], m[1]
		t.Run(fmt.Sprintf("%dx%d", r, p), func(t *testing.T) {
			s := strategytest.New(t, r, p)
			for _, group := range slices.Sorted(maps.Keys(groups)) {
				if group == "over the replicas" && r == 1 || group != "over the replicas" && p == 1 {
					continue // only one device
				}
				checked += check(t, s, group, p)
			}
		})
	}
	t.Logf("checked %d combinations of dtype, collective and mesh", checked)
}

// check checks a group of operations with all dtypes and returns the number of combinations.
func check(t *testing.T, s *strategy.TPUStrategy, group string, p int) int {
	r, ctx := s.NumReplicasInSync(), t.Context()
	all := writable()
	var in []any
	data := make([]array, len(all))
	for i, d := range all {
		data[i] = values(d, r, rowsOf, columnsOf)
		x, err := s.Mirror(ctx, data[i].tensor(), logical.Annotation{})
		require.NoError(t, err)
		in = append(in, x)
	}
	var results []*strategy.PerReplica
	for _, part := range slices.Collect(slices.Chunk(groups[group], 4)) {
		some, err := s.Function(func(rc *strategy.ReplicaContext, in []*graph.Node) (out []*graph.Node) {
			for _, o := range part {
				for i, d := range all {
					if o.of(d) {
						out = append(out, encoded(o.applied(rc, group, decoded(own(rc, in[i]), d), p)))
					}
				}
			}
			return out
		}, strategy.FunctionOptions{}).Run(ctx, in...)
		require.NoError(t, err, group)
		results = append(results, some...)
	}
	n := 0
	for _, o := range groups[group] {
		for i, d := range all {
			if !o.of(d) {
				continue
			}
			replicas := make([]array, r)
			for k := range replicas {
				replicas[k] = part(data[i], 0, k, r)
				replicas[k].dims = replicas[k].dims[1:]
			}
			for k := range r {
				got, err := results[n].Local(ctx, k)
				require.NoError(t, err)
				if wrong := differs(o.expected(d, group, replicas, k, p).normal().tensor(), got); wrong != "" {
					t.Errorf("%s %s of %s, replica %d: %s", o.name, group, d, k, wrong)
					break
				}
			}
			n++
		}
	}
	return n
}

// expected returns the expected result of replica k.
func (o operation) expected(d dtypes.DType, group string, replicas []array, k, p int) array {
	if group != inRegion {
		return o.want(d, replicas, k)
	}
	devices, results := make([]array, p), make([]array, p)
	for q := range devices {
		devices[q] = part(replicas[k], 0, q, p)
	}
	for q := range results {
		results[q] = o.want(d, devices, q)
	}
	return concat(0, results...)
}

func differs(want, got *tensors.Tensor) string {
	if !want.Shape().Equal(got.Shape()) {
		return fmt.Sprintf("shape %s, want %s", got.Shape(), want.Shape())
	}
	if want.Equal(got) {
		return ""
	}
	s := fmt.Sprintf("got %v, want %v", got.Value(), want.Value())
	return s[:min(len(s), 200)]
}
