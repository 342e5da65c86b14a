package spmd

import (
	"fmt"
	"slices"
	"strings"

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

// The replica axis is an axis like the logical axes: a collective over the replicas and a collective
// of a manual region are the same mark with other axes.

// Reduction is the operation with which a collective combines the values of the replicas.
type Reduction = region.Reduction

// The reductions are elementwise. Sum, Max and Min are the sum, the maximum and the minimum.
// Broadcast is the bit-exact value of one replica; all other replicas must pass zeros.
const (
	Sum       = region.Sum
	Max       = region.Max
	Min       = region.Min
	Broadcast = region.Broadcast
)

var replicaAxes = []string{ReplicaAxis}

// AllReduce returns the reduction of x over the replicas, which is the same on each replica. The
// gradient of Sum and Broadcast is the Sum of the replicas' gradients. The other reductions have no
// gradient. Each call adds one all-reduce to the program. Like GoMLX's graph functions it panics
// with its error, an error of kind InvalidArgumentError.
func AllReduce(x *graph.Node, reduction Reduction) *graph.Node {
	t := requireTrace("all_reduce", x)
	return t.emitCollective(x, collectiveMark{op: region.AllReduce{Axes: replicaAxes, Reduction: reduction}},
		func(v *graph.Node) *graph.Node {
			if reduction != Sum && reduction != Broadcast {
				panic(collectiveError("all_reduce", x.Shape().Dimensions,
					"only the sum has a gradient, not "+reduction.String(),
					"stop the gradient before it"))
			}
			return AllReduce(v, Sum)
		})
}

// AllGather returns the concatenation of the x of all replicas along axis, in replica order: the
// dimension grows by the factor R. A negative axis counts from the last. The gradient is
// [ReduceScatter]. It panics with an error of kind InvalidArgumentError.
func AllGather(x *graph.Node, axis int) *graph.Node {
	t := requireTrace("all_gather", x)
	return t.emitGather(x, gatherMark(normalizeAxis("all_gather", x, axis)))
}

// ReduceScatter sums x over the replicas and returns to each replica its slice of the sum along
// axis, in replica order: the dimension shrinks by the factor R, which must divide it. A negative
// axis counts from the last. The gradient is [AllGather]. It panics with an error of kind
// InvalidArgumentError.
func ReduceScatter(x *graph.Node, axis int) *graph.Node {
	t := requireTrace("reduce_scatter", x)
	axis = normalizeAxis("reduce_scatter", x, axis)
	if size := x.Shape().Dimensions[axis]; size%t.opts.Replicas != 0 {
		panic(collectiveError("reduce_scatter", x.Shape().Dimensions,
			fmt.Sprintf("dimension %d of size %d is not divisible by %d replicas", axis, size, t.opts.Replicas),
			"pad the dimension or scatter another one"))
	}
	return t.emitReduceScatter(x, gatherMark(axis))
}

func gatherMark(dim int) collectiveMark {
	return collectiveMark{op: region.AllGather{Axes: replicaAxes, Dim: dim}}
}

// emitGather emits an all-gather over the replicas. Its gradient is emitReduceScatter.
func (t *Trace) emitGather(x *graph.Node, gather collectiveMark) *graph.Node {
	return t.emitCollective(x, gather, func(v *graph.Node) *graph.Node { return t.emitReduceScatter(v, gather) })
}

// emitReduceScatter emits the reduce-scatter that is the gradient of gather.
func (t *Trace) emitReduceScatter(x *graph.Node, gather collectiveMark) *graph.Node {
	scatter := collectiveMark{op: region.ReduceScatter{Axes: replicaAxes, Dim: gather.op.(region.AllGather).Dim},
		split: gather.split}
	return t.emitCollective(x, scatter, func(v *graph.Node) *graph.Node { return t.emitGather(v, gather) })
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
		panic(collectiveError(op, x.Shape().Dimensions, fmt.Sprintf("a graph of backend %q has no replicas",
			x.Graph().Backend().Name()),
			"trace the step through a strategy"))
	case t.InRegion():
		panic(collectiveError(op, x.Shape().Dimensions,
			"inside a region that runs on one logical device, which the others would wait for",
			"call it before or after the OnDevice region"))
	}
	return t
}

func normalizeAxis(op string, x *graph.Node, axis int) int {
	rank := x.Rank()
	if axis < -rank || axis >= rank {
		panic(collectiveError(op, x.Shape().Dimensions, fmt.Sprintf("axis %d of a tensor of rank %d", axis, rank),
			"use an axis that the tensor has"))
	}
	return (axis + rank) % max(rank, 1)
}

// collectiveMark is the mark of a collective.
type collectiveMark struct {
	op region.Collective
	// axes are the axes of op that have more than one device.
	axes []string
	// groups is the alias of the groups of partitions. By default it is derived from axes.
	groups ir.Alias
	// split is the sharding of the operand of a collective over the replicas over the logical devices.
	split logical.Annotation
	// isState is set for the gather of sharded state, which is cheaper to repeat than to keep.
	isState bool
}

// newCollectiveMark returns the mark of an op inside a manual region.
func (t *Trace) newCollectiveMark(op region.Collective) collectiveMark {
	return collectiveMark{op: op, axes: t.nontrivialAxes(op.AxisNames())}
}

func (t *Trace) emitCollective(x *graph.Node, m collectiveMark, gradient func(v *graph.Node) *graph.Node) *graph.Node {
	return t.emit(x, func(f *lowering.Function, x *stablehlo.Value) (*stablehlo.Value, error) {
		return t.markCollective(f, x, m)
	}, gradient)
}

func (t *Trace) markCollective(f *lowering.Function, x *stablehlo.Value, m collectiveMark) (*stablehlo.Value, error) {
	m.axes = t.nontrivialAxes(m.op.AxisNames())
	shape := x.Shape().Clone()
	shape.Dimensions = m.op.ResultDims(shape.Dimensions, t.deviceCount(m.axes))
	return f.Mark(x, shape, m)
}

func (t *Trace) deviceCount(axes []string) int {
	_, n := region.NontrivialAxes(t.axes, axes)
	return n
}

func (t *Trace) nontrivialAxes(axes []string) []string {
	all, _ := region.NontrivialAxes(t.axes, axes)
	return all
}

// collectiveStatement returns the op of a collective, or a copy on a single device.
func (w *assembler) collectiveStatement(m collectiveMark, out, in *ir.Value) (*ir.Statement, error) {
	permute, isPermute := m.op.(region.Permute)
	switch {
	case out.Type.IsEmpty():
		return emptyConstantOp(out), nil
	case isPermute && len(permute.Pairs) == 0:
		return constantOp(out, ir.Zero(out.Type.DType)), nil
	case len(m.axes) == 0:
		return copyOp(out, in), nil
	case w.isSinglePartition() || m.split.Rank() != in.Type.Rank() || !m.split.IsSharded(w.trace.mesh):
		return w.collectiveOp(m, out, in)
	}
	return w.collectivePerShard(m, out, in)
}

// collectivePerShard returns a collective over the replicas inside a computation that is manual over
// the logical axes: each logical device combines its shard. The partitioner has no rule for gathers
// and scatters and would replicate the tensor first.
func (w *assembler) collectivePerShard(m collectiveMark, out, in *ir.Value) (*ir.Statement, error) {
	split := m.split.WithinReplica()
	parts := split.PartsOn(w.trace.mesh)
	shard := func(prefix string, t ir.Type) *ir.Value {
		dims := slices.Clone(t.Dims)
		for i := range dims {
			dims[i] /= parts[i]
		}
		return newValue(prefix+out.Name, t.WithDims(dims...))
	}
	src, dst := shard("from_", in.Type), shard("to_", out.Type)
	spec := []sharding.Spec{split.Spec(in.Type.Rank(), w.factors)}
	dst.Origin = out.Origin
	op, err := w.collectiveOp(m, dst, src)
	if err != nil {
		return nil, err
	}
	s := manualComputationOp("", w.factors.Names(), []*ir.Value{in}, spec, []ir.Type{out.Type}, spec,
		&ir.Region{Arguments: []*ir.Value{src}, Body: []*ir.Statement{op, returnOp("sdy.return", []*ir.Value{dst})}})
	s.Results = []*ir.Value{out}
	return s, nil
}

// collectiveOp returns the StableHLO op of a collective between several devices. The groups and pairs
// contain global partition ids.
func (w *assembler) collectiveOp(m collectiveMark, out, in *ir.Value) (*ir.Statement, error) {
	integer := func(key string, n int) ir.Attribute { return ir.Attribute{Key: key, Value: ir.Int(n)} }
	switch op := m.op.(type) {
	case region.AllReduce:
		s := w.groupOp("stablehlo.all_reduce", m, out, in)
		s.Regions = []*ir.Region{combinerRegion(out, combinerOp(op.Reduction, in.Type.DType))}
		return s, nil
	case region.AllGather:
		return w.groupOp("stablehlo.all_gather", m, out, in, integer("all_gather_dim", op.Dim)), nil
	case region.ReduceScatter:
		s := w.groupOp("stablehlo.reduce_scatter", m, out, in, integer("scatter_dimension", op.Dim))
		s.Regions = []*ir.Region{combinerRegion(out, Sum.String())}
		return s, nil
	case region.AllToAll:
		s := w.groupOp("stablehlo.all_to_all", m, out, in, integer("split_dimension", op.Split),
			integer("concat_dimension", op.Concat), integer("split_count", w.trace.deviceCount(m.axes)))
		// The op has no use_global_device_ids: with a channel the groups contain partitions, and
		// without a channel they contain replicas.
		s.Attributes = slices.DeleteFunc(s.Attributes, func(a ir.Attribute) bool {
			return a.Key == "use_global_device_ids" || a.Key == "channel_handle" && w.replicaProgram
		})
		return s, nil
	case region.Permute:
		w.lastChannel++
		return genericOp("stablehlo.collective_permute", out, in).AddAttribute("channel_handle",
			channelHandle(w.lastChannel)).
			AddAttribute("source_target_pairs", w.pairsAlias(m.axes, op.Pairs)), nil
	}
	return nil, newFault(fmt.Sprintf("collective %T", m.op), "it has no StableHLO op",
		"add a case to assembler.collectiveOp in lowering/spmd")
}

// groupOp returns a collective op between the devices of each group. attributes are the op's own
// attributes.
func (w *assembler) groupOp(name string, m collectiveMark, out, in *ir.Value,
	attributes ...ir.Attribute) *ir.Statement {
	w.lastChannel++
	groups := m.groups
	if groups == "" {
		groups = w.groupsAlias(m.axes)
	}
	s := genericOp(name, out, in)
	s.Attributes = append(slices.Clip(attributes), ir.Attribute{Key: "channel_handle",
		Value: channelHandle(w.lastChannel)},
		ir.Attribute{Key: "replica_groups", Value: groups}, ir.Attribute{Key: "use_global_device_ids"})
	return s
}

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

// broadcastFromDevice sends the value of one logical device of a replica to all of them. The other
// devices must have zeros.
func (w *assembler) broadcastFromDevice(out, in *ir.Value) ([]*ir.Statement, error) {
	m := w.trace.newCollectiveMark(region.AllReduce{Axes: w.trace.mesh.AxisNames(), Reduction: Broadcast})
	m.groups = logicalGroups
	return w.lowerCollective(m, out, in)
}

// groupsAlias returns the alias of the groups of partitions over axes.
func (w *assembler) groupsAlias(axes []string) ir.Alias {
	if slices.Equal(axes, replicaAxes) {
		return replicaGroups
	}
	name := "groups$" + strings.Join(axes, "$")
	w.declareAlias(name, w.partitionGroups(axes))
	return ir.Alias(name)
}

// partitionGroups returns the groups of partitions that differ only on the axes.
func (w *assembler) partitionGroups(axes []string) ir.IntMatrix {
	all, err := w.mesh.Groups(w.factors.FactorsOf(axes...)...)
	if err != nil {
		panic(newFault("region", err.Error(), "report this as a fault of tpustrategy")) // the axes belong to the mesh
	}
	return all
}

// pairsAlias returns the alias of the pairs of partitions in which the first partition sends to the
// second.
func (w *assembler) pairsAlias(axes []string, pairs [][2]int) ir.Alias {
	var all ir.IntMatrix
	for _, group := range w.partitionGroups(axes) {
		for _, pair := range pairs {
			all = append(all, []int{group[pair[0]], group[pair[1]]})
		}
	}
	for _, known := range w.attributeAliases {
		if value, ok := known.Value.(ir.IntMatrix); ok && slices.EqualFunc(value, all, slices.Equal) &&
			strings.HasPrefix(known.Key, "pairs") {
			return ir.Alias(known.Key)
		}
	}
	name := fmt.Sprintf("pairs_%d", len(w.attributeAliases))
	w.declareAlias(name, all)
	return ir.Alias(name)
}

func (w *assembler) declareAlias(name string, value ir.Attr) {
	if !slices.ContainsFunc(w.attributeAliases, func(a ir.Attribute) bool { return a.Key == name }) {
		w.attributeAliases = append(w.attributeAliases, ir.Attribute{Key: name, Value: value})
	}
}
