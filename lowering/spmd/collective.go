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

// The replica axis is a mesh axis like the logical axes. A collective over the replicas and a
// collective in a manual region therefore have the same representation.

// Reduction is the op with which a collective combines elements of several devices.
type Reduction = region.Reduction

// Sum, Max and Min are the elementwise reductions. Broadcast returns the bits of one replica's
// value exactly; all other replicas must pass zeros.
const (
	Sum       = region.Sum
	Max       = region.Max
	Min       = region.Min
	Broadcast = region.Broadcast
)

var replicaAxes = []string{ReplicaAxis}

// AllReduce returns the elementwise reduction of x over the replicas, which is the same on each
// replica. The gradient of Sum and Broadcast is the sum of the replicas' gradients. The other
// reductions have no gradient. Each call adds one all-reduce to the program. Like GoMLX's graph
// functions, AllReduce panics with its errors, which have kind InvalidArgumentError.
func AllReduce(x *graph.Node, reduction Reduction) *graph.Node {
	t := requireTrace("all_reduce", x)
	return t.emitCollective(x, collectivePlaceholder{op: region.AllReduce{Axes: replicaAxes, Reduction: reduction}},
		func(v *graph.Node) *graph.Node {
			if reduction != Sum && reduction != Broadcast {
				panic(collectiveError("all_reduce", x.Shape().Dimensions,
					"only the sum has a gradient, not "+reduction.String(),
					"stop the gradient before it"))
			}
			return AllReduce(v, Sum)
		})
}

// AllGather concatenates the x of all replicas along axis, in replica order. A negative axis counts
// from the last. The gradient is [ReduceScatter]. AllGather panics with an error of kind
// InvalidArgumentError.
func AllGather(x *graph.Node, axis int) *graph.Node {
	t := requireTrace("all_gather", x)
	return t.emitGather(x, gatherOverReplicas(normalizeAxis("all_gather", x, axis)))
}

// ReduceScatter sums x over the replicas, splits the sum along axis, and returns slice i to replica
// i. The number of replicas must divide the size of the axis. A negative axis counts from the last.
// The gradient is [AllGather]. ReduceScatter panics with an error of kind InvalidArgumentError.
func ReduceScatter(x *graph.Node, axis int) *graph.Node {
	t := requireTrace("reduce_scatter", x)
	axis = normalizeAxis("reduce_scatter", x, axis)
	if size := x.Shape().Dimensions[axis]; size%t.opts.Replicas != 0 {
		panic(collectiveError("reduce_scatter", x.Shape().Dimensions,
			fmt.Sprintf("dimension %d of size %d is not divisible by %d replicas", axis, size, t.opts.Replicas),
			"pad the dimension or scatter another one"))
	}
	return t.emitReduceScatter(x, gatherOverReplicas(axis))
}

func gatherOverReplicas(dim int) collectivePlaceholder {
	return collectivePlaceholder{op: region.AllGather{Axes: replicaAxes, Dim: dim}}
}

func (t *Trace) emitGather(x *graph.Node, gather collectivePlaceholder) *graph.Node {
	return t.emitCollective(x, gather, func(v *graph.Node) *graph.Node { return t.emitReduceScatter(v, gather) })
}

// emitReduceScatter emits the reduce-scatter that is the gradient of gather.
func (t *Trace) emitReduceScatter(x *graph.Node, gather collectivePlaceholder) *graph.Node {
	scatter := collectivePlaceholder{op: region.ReduceScatter{Axes: replicaAxes, Dim: gather.op.(region.AllGather).Dim},
		split: gather.split}
	return t.emitCollective(x, scatter, func(v *graph.Node) *graph.Node { return t.emitGather(v, gather) })
}

// ReplicaIDName is the name of the step function's parameter with the replica id.
const ReplicaIDName = "replica_id"

// ReplicaID returns the id of the replica that runs the step, an int32 scalar in [0, R).
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

// collectivePlaceholder represents a collective until the assembler lowers it.
type collectivePlaceholder struct {
	op region.Collective
	// axes contains the axes of op with more than one device.
	axes []string
	// groups is the alias of the partition groups, or "" to derive the groups from axes.
	groups ir.Alias
	// split is the sharding of the operand over the logical devices, for a collective over
	// replicas.
	split logical.Annotation
	// isState is set for a gather of sharded state, which is repeated rather than kept.
	isState bool
}

// newCollective returns a placeholder for a collective inside a manual region.
func (t *Trace) newCollective(op region.Collective) collectivePlaceholder {
	return collectivePlaceholder{op: op, axes: t.nontrivialAxes(op.AxisNames())}
}

func (t *Trace) emitCollective(x *graph.Node, m collectivePlaceholder,
	gradient func(v *graph.Node) *graph.Node) *graph.Node {
	return t.emit(x, func(f *lowering.Function, x *stablehlo.Value) (*stablehlo.Value, error) {
		return t.addCollective(f, x, m)
	}, gradient)
}

func (t *Trace) addCollective(f *lowering.Function, x *stablehlo.Value,
	m collectivePlaceholder) (*stablehlo.Value, error) {
	m.axes = t.nontrivialAxes(m.op.AxisNames())
	shape := x.Shape().Clone()
	shape.Dimensions = m.op.ResultDims(shape.Dimensions, t.deviceCount(m.axes))
	return f.AddPlaceholder(x, shape, m)
}

func (t *Trace) deviceCount(axes []string) int {
	_, n := region.NontrivialAxes(t.axes, axes)
	return n
}

func (t *Trace) nontrivialAxes(axes []string) []string {
	all, _ := region.NontrivialAxes(t.axes, axes)
	return all
}

// collectiveStatement lowers a collective to one op. If the collective is over a single device, the
// op is a copy.
func (w *assembler) collectiveStatement(m collectivePlaceholder, out, in *ir.Value) (*ir.Statement, error) {
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

// collectivePerShard returns a collective over the replicas in which each logical device combines
// only its own shard. The collective is inside a computation that is manual over the logical axes,
// because Shardy's partitioner would replicate the tensor before a gather or scatter.
func (w *assembler) collectivePerShard(m collectivePlaceholder, out, in *ir.Value) (*ir.Statement, error) {
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

// collectiveOp returns the StableHLO op of a collective between several devices. The groups and
// pairs of devices in its attributes are partition ids.
func (w *assembler) collectiveOp(m collectivePlaceholder, out, in *ir.Value) (*ir.Statement, error) {
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

// groupOp returns a collective op with its replica groups and channel. attributes contains its
// other attributes.
func (w *assembler) groupOp(name string, m collectivePlaceholder, out, in *ir.Value,
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

func combinerOp(r Reduction, dtype dtypes.DType) string {
	switch {
	case dtype == dtypes.Bool && (r == Max || r == Broadcast):
		return "or"
	case dtype == dtypes.Bool && r == Min:
		return "and"
	}
	return r.String()
}

// broadcastFromDevice sends the value of one logical device to all logical devices of the replica.
// All other devices must pass zeros.
func (w *assembler) broadcastFromDevice(out, in *ir.Value) ([]*ir.Statement, error) {
	m := w.trace.newCollective(region.AllReduce{Axes: w.trace.mesh.AxisNames(), Reduction: Broadcast})
	m.groups = logicalGroups
	return m.expand(w, out, in)
}

// groupsAlias returns the name of the attribute that lists the groups of devices for a collective
// over axes. It declares the attribute if necessary.
func (w *assembler) groupsAlias(axes []string) ir.Alias {
	if slices.Equal(axes, replicaAxes) {
		return replicaGroups
	}
	name := "groups$" + strings.Join(axes, "$")
	w.declareAlias(name, w.partitionGroups(axes))
	return ir.Alias(name)
}

// partitionGroups returns the groups of partitions whose mesh coordinates differ only on axes.
func (w *assembler) partitionGroups(axes []string) ir.IntMatrix {
	all, err := w.mesh.Groups(w.factors.FactorsOf(axes...)...)
	if err != nil {
		panic(newFault("region", err.Error(), "report this as a fault of tpustrategy")) // the axes belong to the mesh
	}
	return all
}

// pairsAlias returns the name of the attribute that lists the (source, target) partitions of a
// collective_permute over axes. It declares the attribute if necessary. pairs contains the (source,
// target) indices within a group.
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
