package spmd

import (
	"fmt"
	"slices"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/go-xla/stablehlo"
	"github.com/gomlx/gomlx/core/graph"

	"github.com/tpustrategy/tpustrategy/internal/region"
	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/lowering"
	"github.com/tpustrategy/tpustrategy/lowering/ir"
	"github.com/tpustrategy/tpustrategy/sharding"
)

// Reduction is the operation with which a collective combines the values of the replicas.
type Reduction = region.Reduction

// The reductions, elementwise over the replicas: Sum, Max and Min are the sum, the largest and the
// smallest value. Only is the bit-exact value of the one replica whose value is not zero: all other
// replicas must pass zeros.
const (
	Sum       = region.Sum
	Max       = region.Max
	Min       = region.Min
	Broadcast = region.Broadcast
)

// combinerOp returns the op of a reduction for a dtype.
func combinerOp(r Reduction, dtype dtypes.DType) string {
	switch {
	case dtype == dtypes.Bool && (r == Max || r == Broadcast):
		return "or"
	case dtype == dtypes.Bool && r == Min:
		return "and"
	}
	return r.String()
}

// AllReduce returns the reduction of x over the replicas, which is the same on each replica. The
// gradient of Sum and Only is the Sum of the replicas' gradients. The other reductions have no
// gradient. Each call adds one all-reduce to the program. Like GoMLX's graph functions it panics
// with its error, an error of kind InvalidArgumentError.
func AllReduce(x *graph.Node, reduction Reduction) *graph.Node {
	t := requireTrace("all_reduce", x)
	return t.emitCollective(x, allReduceMark{reduction}, nil, func(v *graph.Node) *graph.Node {
		if reduction != Sum && reduction != Broadcast {
			panic(collectiveError("all_reduce", x.Shape().Dimensions, "only the sum has a gradient, not "+reduction.String(), "stop the gradient before it"))
		}
		return AllReduce(v, Sum)
	})
}

// AllGather returns the concatenation of the x of all replicas along axis, in replica order: the
// dimension grows by the factor R. A negative axis counts from the last. The gradient is
// [ReduceScatter]. It panics with an error of kind InvalidArgumentError.
func AllGather(x *graph.Node, axis int) *graph.Node {
	t := requireTrace("all_gather", x)
	axis = normalizeAxis("all_gather", x, axis)
	return t.emitGather(x, allGatherMark{axis: axis})
}

// ReduceScatter sums x over the replicas and returns to each replica its slice of the sum along
// axis, in replica order: the dimension shrinks by the factor R, which must divide it. A negative
// axis counts from the last. The gradient is [AllGather]. It panics with an error of kind
// InvalidArgumentError.
func ReduceScatter(x *graph.Node, axis int) *graph.Node {
	t := requireTrace("reduce_scatter", x)
	axis = normalizeAxis("reduce_scatter", x, axis)
	if size := x.Shape().Dimensions[axis]; size%t.opts.Replicas != 0 {
		panic(collectiveError("reduce_scatter", x.Shape().Dimensions, fmt.Sprintf("dimension %d of size %d is not divisible by %d replicas", axis, size, t.opts.Replicas), "pad the dimension or scatter another one"))
	}
	return t.emitReduceScatter(x, allGatherMark{axis: axis})
}

// emitGather concatenates the shards of a tensor. scatter sums tensors and splits the sum into shards.
// Each is the gradient of the other.
func (t *Trace) emitGather(x *graph.Node, of allGatherMark) *graph.Node {
	return t.emitCollective(x, of, func(dims []int) { dims[of.axis] *= t.opts.Replicas }, func(v *graph.Node) *graph.Node { return t.emitReduceScatter(v, of) })
}

func (t *Trace) emitReduceScatter(x *graph.Node, to allGatherMark) *graph.Node {
	return t.emitCollective(x, reduceScatterMark{to.axis, to.split}, func(dims []int) { dims[to.axis] /= t.opts.Replicas },
		func(v *graph.Node) *graph.Node { return t.emitGather(v, to) })
}

// ReplicaIDName is the name of the step function's parameter with the replica's number.
const ReplicaIDName = "replica_id"

// ReplicaID returns the number of the replica that runs the step, an int32 scalar from 0 to R-1.
func ReplicaID(g *graph.Graph) *graph.Node {
	if g.GetParameterByName(ReplicaIDName) == nil {
		return graph.Parameter(g, ReplicaIDName, shapes.Make(dtypes.Int32))
	}
	return g.GetParameterByName(ReplicaIDName)
}

func requireTrace(op string, x *graph.Node) *Trace {
	if x == nil {
		panic(collectiveError(op, nil, "a nil node", "pass a node of the step"))
	}
	t, ok := x.Graph().Backend().(*Trace)
	switch {
	case !ok:
		panic(collectiveError(op, x.Shape().Dimensions, fmt.Sprintf("a graph of backend %q has no replicas", x.Graph().Backend().Name()), "trace the step through a strategy"))
	case t.InRegion():
		panic(collectiveError(op, x.Shape().Dimensions, "inside a region that runs on one logical device, which the others would wait for", "call it before or after the On region"))
	}
	return t
}

func normalizeAxis(op string, x *graph.Node, axis int) int {
	rank := x.Rank()
	if axis < -rank || axis >= rank {
		panic(collectiveError(op, x.Shape().Dimensions, fmt.Sprintf("axis %d of a tensor of rank %d", axis, rank), "use an axis that the tensor has"))
	}
	return (axis + rank) % max(rank, 1)
}

// emitCollective adds a collective with operand x. resize changes the dimensions of the result.
func (t *Trace) emitCollective(x *graph.Node, m mark, resize func(dims []int), gradient func(v *graph.Node) *graph.Node) *graph.Node {
	return t.emit(x, func(f *lowering.Function, x *stablehlo.Value) (*stablehlo.Value, error) {
		shape := x.Shape().Clone()
		if resize != nil {
			resize(shape.Dimensions)
		}
		return f.Mark(x, shape, m)
	}, gradient)
}

// The collectives use global partition ids: one group of replicas for each logical coordinate. The
// groups are an attribute alias, which is written once per module.

// reduced is the mark of an all-reduce, gathered of an all-gather and scattered of a
// reduce-scatter.
type (
	allReduceMark struct{ by Reduction }
	allGatherMark struct {
		axis int
		// state is set for the gather of sharded state, which is cheaper to repeat than to keep.
		state bool
		split logical.Annotation
	}
	reduceScatterMark struct {
		axis  int
		split logical.Annotation
	}
)

func (c allReduceMark) lower(w *assembler, out, in *ir.Value) *ir.Statement {
	return w.collectivePerShard(out, in, logical.Annotation{}, func(out, in *ir.Value) *ir.Statement {
		return w.collectiveOp("stablehlo.all_reduce", out, in, combinerOp(c.by, in.Type.DType), replicaGroups)
	})
}

func (c allGatherMark) lower(w *assembler, out, in *ir.Value) *ir.Statement {
	return w.collectivePerShard(out, in, c.split, func(out, in *ir.Value) *ir.Statement {
		return w.collectiveOp("stablehlo.all_gather", out, in, "", replicaGroups, ir.Attribute{Key: "all_gather_dim", Value: ir.Int(c.axis)})
	})
}

func (c reduceScatterMark) lower(w *assembler, out, in *ir.Value) *ir.Statement {
	return w.collectivePerShard(out, in, c.split, func(out, in *ir.Value) *ir.Statement {
		return w.collectiveOp("stablehlo.reduce_scatter", out, in, Sum.String(), replicaGroups, ir.Attribute{Key: "scatter_dimension", Value: ir.Int(c.axis)})
	})
}

// collectivePerShard returns the op that write creates, or a copy on a single device. If the tensor is
// split over logical devices, each of them combines its shard: the op is then inside a computation
// that is manual over the logical axes, because the partitioner has no rule for gathers and
// scatters and would replicate the tensor first.
func (w *assembler) collectivePerShard(out, in *ir.Value, split logical.Annotation, write func(out, in *ir.Value) *ir.Statement) *ir.Statement {
	switch {
	case out.Type.IsEmpty():
		return emptyConstantOp(out)
	case w.replicas == 1:
		return copyOp(out, in)
	case w.isSinglePartition() || split.Rank() != in.Type.Rank() || !split.IsSharded(w.trace.mesh):
		return write(out, in)
	}
	split = split.WithinReplica()
	parts := split.PartsOn(w.trace.mesh)
	local := func(prefix string, of ir.Type) *ir.Value {
		dims := slices.Clone(of.Dims)
		for i := range dims {
			dims[i] /= parts[i]
		}
		return newValue(prefix+out.Name, of.WithDims(dims...))
	}
	from, to, spec := local("from_", in.Type), local("to_", out.Type), []sharding.Spec{split.Spec(in.Type.Rank(), w.factors)}
	to.Origin = out.Origin
	s := manualComputationOp("", w.factors.Names(), []*ir.Value{in}, spec, []ir.Type{out.Type}, spec,
		&ir.Region{Arguments: []*ir.Value{from}, Body: []*ir.Statement{write(to, from), returnOp("sdy.return", []*ir.Value{to})}})
	s.Results = []*ir.Value{out}
	return s
}
