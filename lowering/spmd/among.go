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

// amongMark is the mark of a collective of package region.
type amongMark struct {
	axes []string
	op   region.Op
}

// numberMark is the mark of the device's number on axes. The computation that is manual over the
// axes defines the number. It is 0 if the axes have one device.
type numberMark struct{ axes []string }

func (numberMark) write(_ *writer, out, _ *ir.Value) *ir.Statement {
	return constant(out, ir.Integer(0))
}

// collectiveMark adds the mark of a collective of a manual region.
func (t *Trace) collectiveMark(f *lowering.Function, x *stablehlo.Value, op region.Op) (*stablehlo.Value, error) {
	shape := x.Shape().Clone()
	var axes []string
	switch op := op.(type) {
	case region.AllReduce:
		axes = op.Axes
	case region.AllGather:
		axes = op.Axes
		shape.Dimensions[op.Dim] *= t.devices(axes)
	case region.ReduceScatter:
		axes = op.Axes
		shape.Dimensions[op.Dim] /= t.devices(axes)
	case region.AllToAll:
		axes = op.Axes
		shape.Dimensions[op.Split] /= t.devices(axes)
		shape.Dimensions[op.Concat] *= t.devices(axes)
	case region.Permute:
		axes = op.Axes
	case region.Number:
		return f.Mark(x, xshapes.Make(dtypes.Int32), numberMark{t.divided(op.Axes)})
	default:
		return nil, fault("region", "it has an op that this package does not know", "report this as a fault of tpustrategy")
	}
	return f.Mark(x, shape, amongMark{t.divided(axes), op})
}

// devices returns the number of devices on axes.
func (t *Trace) devices(axes []string) int {
	_, n := region.Divided(t.mesh, axes)
	return n
}

// divided returns the axes that have more than one device.
func (t *Trace) divided(axes []string) []string {
	all, _ := region.Divided(t.mesh, axes)
	return all
}

func (m amongMark) write(w *writer, out, in *ir.Value) *ir.Statement {
	sent, sends := m.op.(region.Permute)
	switch {
	case out.Type.Empty():
		return empty(out)
	case sends && len(sent.Pairs) == 0:
		return constant(out, ir.Zero(out.Type.DType))
	case w.single() || len(m.axes) == 0:
		return unchanged(out, in)
	}
	switch op := m.op.(type) {
	case region.AllReduce:
		return w.collect("stablehlo.all_reduce", out, in, combines(op.By, in.Type.DType), w.groupsOver(m.axes))
	case region.AllGather:
		return w.collect("stablehlo.all_gather", out, in, "", w.groupsOver(m.axes), ir.Attribute{Key: "all_gather_dim", Value: ir.Int(op.Dim)})
	case region.ReduceScatter:
		return w.collect("stablehlo.reduce_scatter", out, in, Sum.String(), w.groupsOver(m.axes), ir.Attribute{Key: "scatter_dimension", Value: ir.Int(op.Dim)})
	case region.AllToAll:
		return w.allToAll(out, in, w.groupsOver(m.axes), op, w.trace.devices(m.axes))
	}
	w.channels++
	return &ir.Statement{Op: "stablehlo.collective_permute", Operands: []*ir.Value{in}, Results: []*ir.Value{out}, Form: ir.Inline,
		Attributes: []ir.Attribute{{Key: "channel_handle", Value: channel(w.channels)}, {Key: "source_target_pairs", Value: w.pairsOver(m.axes, sent.Pairs)}}}
}

// allToAll returns an all-to-all among groups of n devices. The op has no use_global_device_ids:
// with a channel the groups contain partitions, and without a channel they contain replicas.
func (w *writer) allToAll(out, in *ir.Value, groups ir.Alias, op region.AllToAll, n int) *ir.Statement {
	s := w.collect("stablehlo.all_to_all", out, in, "", groups, ir.Attribute{Key: "split_dimension", Value: ir.Int(op.Split)},
		ir.Attribute{Key: "concat_dimension", Value: ir.Int(op.Concat)}, ir.Attribute{Key: "split_count", Value: ir.Int(n)})
	s.Attributes = slices.DeleteFunc(s.Attributes, func(a ir.Attribute) bool {
		return a.Key == "use_global_device_ids" || a.Key == "channel_handle" && w.programs
	})
	return s
}

// groupsOver returns the alias of the groups of partitions over axes.
func (w *writer) groupsOver(axes []string) ir.Alias {
	name := "groups$" + strings.Join(axes, "$")
	w.declare(name, w.partitionsOver(axes))
	return ir.Alias(name)
}

// partitionsOver returns the groups of partitions that differ only on the axes.
func (w *writer) partitionsOver(axes []string) ir.Rows {
	all, err := w.mesh.Groups(w.factors.Pieces(axes...)...)
	if err != nil {
		panic(fault("region", err.Error(), "report this as a fault of tpustrategy")) // the axes belong to the mesh
	}
	return all
}

// pairsOver returns the alias of the pairs of partitions in which the first partition sends to the
// second.
func (w *writer) pairsOver(axes []string, pairs [][2]int) ir.Alias {
	var all ir.Rows
	for _, group := range w.partitionsOver(axes) {
		for _, pair := range pairs {
			all = append(all, []int{group[pair[0]], group[pair[1]]})
		}
	}
	for _, known := range w.aliases {
		if value, ok := known.Value.(ir.Rows); ok && slices.EqualFunc(value, all, slices.Equal) && strings.HasPrefix(known.Key, "pairs") {
			return ir.Alias(known.Key)
		}
	}
	name := fmt.Sprintf("pairs_%d", len(w.aliases))
	w.declare(name, all)
	return ir.Alias(name)
}

// declare adds an alias to the module unless the module has it already.
func (w *writer) declare(name string, value ir.Attr) {
	if !slices.ContainsFunc(w.aliases, func(a ir.Attribute) bool { return a.Key == name }) {
		w.aliases = append(w.aliases, ir.Attribute{Key: name, Value: value})
	}
}
