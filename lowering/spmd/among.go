package spmd

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/go-xla/stablehlo"
	xshapes "github.com/gomlx/go-xla/types/shapes"

	"github.com/tpustrategy/tpustrategy/internal/region"
	"github.com/tpustrategy/tpustrategy/lowering"
	"github.com/tpustrategy/tpustrategy/lowering/ir"
)

// A collective of a manual region combines the devices of a replica that differ only in their
// coordinates on the axes of the op. The groups of partitions for a set of axes are an attribute
// alias, which is written once per module.

// namedAxesMark is the mark of a collective of package region.
type namedAxesMark struct {
	axes []string
	op   region.Op
}

// deviceIndexMark is the mark of the device's number on axes. The computation that is manual over the
// axes defines the number. It is 0 if the axes have one device.
type deviceIndexMark struct{ axes []string }

func (deviceIndexMark) lower(_ *assembler, out, _ *ir.Value) *ir.Statement {
	return constantOp(out, ir.Integer(0))
}

// emitNamedAxesOp adds the mark of a collective of a manual region.
func (t *Trace) emitNamedAxesOp(f *lowering.Function, x *stablehlo.Value, op region.Op) (*stablehlo.Value, error) {
	shape := x.Shape().Clone()
	var axes []string
	switch op := op.(type) {
	case region.AllReduce:
		axes = op.Axes
	case region.AllGather:
		axes = op.Axes
		shape.Dimensions[op.Dim] *= t.deviceCount(axes)
	case region.ReduceScatter:
		axes = op.Axes
		shape.Dimensions[op.Dim] /= t.deviceCount(axes)
	case region.AllToAll:
		axes = op.Axes
		shape.Dimensions[op.Split] /= t.deviceCount(axes)
		shape.Dimensions[op.Concat] *= t.deviceCount(axes)
	case region.Permute:
		axes = op.Axes
	case region.DeviceIndex:
		return f.Mark(x, xshapes.Make(dtypes.Int32), deviceIndexMark{t.nontrivialAxes(op.Axes)})
	default:
		return nil, newFault("region", "it has an op that this package does not know", "report this as a fault of tpustrategy")
	}
	return f.Mark(x, shape, namedAxesMark{t.nontrivialAxes(axes), op})
}

// deviceCount returns the number of devices on axes.
func (t *Trace) deviceCount(axes []string) int {
	_, n := region.NontrivialAxes(t.mesh, axes)
	return n
}

// nontrivialAxes returns the axes that have more than one device.
func (t *Trace) nontrivialAxes(axes []string) []string {
	all, _ := region.NontrivialAxes(t.mesh, axes)
	return all
}

func (m namedAxesMark) lower(w *assembler, out, in *ir.Value) *ir.Statement {
	sent, sends := m.op.(region.Permute)
	switch {
	case out.Type.IsEmpty():
		return emptyConstantOp(out)
	case sends && len(sent.Pairs) == 0:
		return constantOp(out, ir.Zero(out.Type.DType))
	case w.isSinglePartition() || len(m.axes) == 0:
		return copyOp(out, in)
	}
	switch op := m.op.(type) {
	case region.AllReduce:
		return w.collectiveOp("stablehlo.all_reduce", out, in, combinerOp(op.Reduction, in.Type.DType), w.groupsAlias(m.axes))
	case region.AllGather:
		return w.collectiveOp("stablehlo.all_gather", out, in, "", w.groupsAlias(m.axes), ir.Attribute{Key: "all_gather_dim", Value: ir.Int(op.Dim)})
	case region.ReduceScatter:
		return w.collectiveOp("stablehlo.reduce_scatter", out, in, Sum.String(), w.groupsAlias(m.axes), ir.Attribute{Key: "scatter_dimension", Value: ir.Int(op.Dim)})
	case region.AllToAll:
		return w.allToAll(out, in, w.groupsAlias(m.axes), op, w.trace.deviceCount(m.axes))
	}
	w.lastChannel++
	return &ir.Statement{Op: "stablehlo.collective_permute", Operands: []*ir.Value{in}, Results: []*ir.Value{out}, Form: ir.Generic,
		Attributes: []ir.Attribute{{Key: "channel_handle", Value: channelHandle(w.lastChannel)}, {Key: "source_target_pairs", Value: w.pairsAlias(m.axes, sent.Pairs)}}}
}

// allToAll returns an all-to-all among groups of n devices. The op has no use_global_device_ids:
// with a channel the groups contain partitions, and without a channel they contain replicas.
func (w *assembler) allToAll(out, in *ir.Value, groups ir.Alias, op region.AllToAll, n int) *ir.Statement {
	s := w.collectiveOp("stablehlo.all_to_all", out, in, "", groups, ir.Attribute{Key: "split_dimension", Value: ir.Int(op.Split)},
		ir.Attribute{Key: "concat_dimension", Value: ir.Int(op.Concat)}, ir.Attribute{Key: "split_count", Value: ir.Int(n)})
	s.Attributes = slices.DeleteFunc(s.Attributes, func(a ir.Attribute) bool {
		return a.Key == "use_global_device_ids" || a.Key == "channel_handle" && w.replicaProgram
	})
	return s
}

// groupsAlias returns the alias of the groups of partitions over axes.
func (w *assembler) groupsAlias(axes []string) ir.Alias {
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
		if value, ok := known.Value.(ir.IntMatrix); ok && slices.EqualFunc(value, all, slices.Equal) && strings.HasPrefix(known.Key, "pairs") {
			return ir.Alias(known.Key)
		}
	}
	name := fmt.Sprintf("pairs_%d", len(w.attributeAliases))
	w.declareAlias(name, all)
	return ir.Alias(name)
}

// declareAlias adds an alias to the module unless the module has it already.
func (w *assembler) declareAlias(name string, value ir.Attr) {
	if !slices.ContainsFunc(w.attributeAliases, func(a ir.Attribute) bool { return a.Key == name }) {
		w.attributeAliases = append(w.attributeAliases, ir.Attribute{Key: name, Value: value})
	}
}
