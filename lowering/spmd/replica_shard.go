package spmd

import (
	"fmt"
	"slices"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/go-xla/stablehlo"
	"github.com/gomlx/gomlx/core/graph"

	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/lowering"
	"github.com/tpustrategy/tpustrategy/lowering/ir"
)

// ReplicaShard says that a tensor is cut over the replicas: each holds a part along a dimension. All
// parts have the same size: the last ones are padded where the number of replicas does not divide
// the dimension. The zero value says that each replica has the whole tensor.
type ReplicaShard struct {
	// Dim is the dimension that is cut, Size its size in the whole tensor, without padding.
	Dim, Size int
}

// Is reports whether the tensor is in parts.
func (o ReplicaShard) Is() bool { return o.Size > 0 }

// Part returns the size of dimension Dim in the part of each of so many replicas.
func (o ReplicaShard) Part(replicas int) int { return (o.Size + replicas - 1) / replicas }

// Parts returns the dimensions of a part of a tensor of these dimensions.
func (o ReplicaShard) Parts(dims []int, replicas int) []int {
	dims = slices.Clone(dims)
	if o.Is() {
		dims[o.Dim] = o.Part(replicas)
	}
	return dims
}

// Wholes returns the dimensions of the tensor that parts of these dimensions make.
func (o ReplicaShard) Wholes(dims []int) []int {
	dims = slices.Clone(dims)
	if o.Is() {
		dims[o.Dim] = o.Size
	}
	return dims
}

// String describes the parts, such as "dimension 1 of 512 over the replicas".
func (o ReplicaShard) String() string {
	if !o.Is() {
		return "whole on each replica"
	}
	return fmt.Sprintf("dimension %d of %d over the replicas", o.Dim, o.Size)
}

// Whole returns the tensor that the replicas' parts make, the same on each, by one all-gather. split
// says how the tensor is split over the logical devices, each of which gathers its part alone. The
// gradient is [ScatterPart]. It panics with an error of kind InvalidArgumentError.
func Whole(part *graph.Node, o ReplicaShard, split logical.Annotation) *graph.Node {
	t := traceOf("whole", part)
	t.checkOver("whole", part, o, o.Part(t.opts.Replicas))
	return cut(t.gather(part, o.gathered(split)), o)
}

// ScatterPart sums x over the replicas and returns the replica's part of the sum, by one
// reduce-scatter. split says how x is split over the logical devices, each of which sums its part
// alone. The gradient is [Whole]. It panics with an error of kind InvalidArgumentError.
func ScatterPart(x *graph.Node, o ReplicaShard, split logical.Annotation) *graph.Node {
	t := traceOf("scatter_part", x)
	t.checkOver("scatter_part", x, o, o.Size)
	return t.scatter(padded0(x, o, t.opts.Replicas), o.gathered(split))
}

// gathered is the mark of the parts brought together.
func (o ReplicaShard) gathered(split logical.Annotation) gathered {
	return gathered{axis: o.Dim, state: true, split: split}
}

// OwnPart returns the replica's part of x, which is the same on all replicas, without
// communication. It panics with an error of kind InvalidArgumentError.
func OwnPart(x *graph.Node, o ReplicaShard) *graph.Node {
	t := traceOf("own_part", x)
	t.checkOver("own_part", x, o, o.Size)
	x = padded0(x, o, t.opts.Replicas)
	if t.opts.Replicas == 1 {
		return x
	}
	g, size := x.Graph(), o.Part(t.opts.Replicas)
	starts := slices.Repeat([]*graph.Node{graph.Const(g, int32(0))}, x.Rank())
	starts[o.Dim] = graph.Mul(ReplicaID(g), graph.Const(g, int32(size)))
	return graph.DynamicSlice(x, starts, o.Parts(x.Shape().Dimensions, t.opts.Replicas))
}

// PartOf returns the replica's part of a parameter whose argument is in parts, without
// communication; the step then has no need of the whole. A gradient ends at the part: it is that of
// the part alone, and none of the parameter.
func PartOf(parameter *graph.Node, o ReplicaShard) *graph.Node {
	t := traceOf("part_of", parameter)
	t.checkOver("part_of", parameter, o, o.Size)
	if parameter.Type() != graph.NodeTypeParameter {
		panic(uncollected("part_of", parameter.Shape().Dimensions, "not a parameter of the step", "use OwnPart"))
	}
	return t.part(parameter, o, ownedPart{})
}

// part is a node of the shape of a part of x, at which gradients end.
func (t *Trace) part(x *graph.Node, o ReplicaShard, m mark) *graph.Node {
	return t.emit(x, func(f *lowering.Function, x *stablehlo.Value) (*stablehlo.Value, error) {
		shape := x.Shape().Clone()
		shape.Dimensions = o.Parts(shape.Dimensions, t.opts.Replicas)
		return f.Mark(x, shape, m)
	}, func(*graph.Node) *graph.Node { return nil })
}

// GradientTo returns x. Its gradient is none of x's but one of part's: what gradient makes of it.
func GradientTo(part, x *graph.Node, gradient func(adjoint *graph.Node) *graph.Node) *graph.Node {
	t := traceOf("gradient_to", x)
	var value *stablehlo.Value
	t.emit(x, func(_ *lowering.Function, x *stablehlo.Value) (*stablehlo.Value, error) {
		value = x
		return x, nil
	}, nil)
	y := t.emit(part, func(*lowering.Function, *stablehlo.Value) (*stablehlo.Value, error) { return value, nil }, gradient)
	t.repeats[y] = func(copied func(input *graph.Node) *graph.Node) *graph.Node {
		return GradientTo(copied(part), copied(x), gradient)
	}
	return y
}

// PartGradient stands for the replica's part of x where nothing but its gradient counts: it is a
// node to take gradients of, see [GradientTo], and zeros.
func PartGradient(x *graph.Node, o ReplicaShard) *graph.Node {
	t := traceOf("part_gradient", x)
	t.checkOver("part_gradient", x, o, o.Size)
	return t.part(x, o, zeros{})
}

// checkOver refuses a tensor that is not what o says.
func (t *Trace) checkOver(op string, x *graph.Node, o ReplicaShard, size int) {
	if dims := x.Shape().Dimensions; !o.Is() || o.Dim < 0 || o.Dim >= len(dims) || dims[o.Dim] != size {
		panic(uncollected(op, dims, fmt.Sprintf("not what %s says of %d replicas", o, t.opts.Replicas), "give the tensor that was cut, along the dimension that was"))
	}
}

// padded0 pads a tensor with zeros so that its parts have one size.
func padded0(x *graph.Node, o ReplicaShard, replicas int) *graph.Node {
	more := o.Part(replicas)*replicas - o.Size
	if more == 0 {
		return x
	}
	axes := make([]graph.PadAxis, x.Rank())
	axes[o.Dim].End = more
	return graph.Pad(x, graph.Const(x.Graph(), shapes.CastAsDType(0, x.DType())), axes...)
}

// cut leaves out the padding.
func cut(x *graph.Node, o ReplicaShard) *graph.Node {
	if x.Shape().Dimensions[o.Dim] == o.Size {
		return x
	}
	return graph.SliceAxis(x, o.Dim, graph.AxisRange(0, o.Size))
}

// ownedPart asks for the part of a parameter that the replica holds.
type ownedPart struct{}

func (ownedPart) write(w *writer, out, in *ir.Value) *ir.Statement {
	if part := w.parts[in]; part != nil {
		return unchanged(out, part)
	}
	return unchanged(out, in)
}

// parameters are the step's, with the replica's parts in the place of tensors that are in parts
// and that the step reads whole.
func (w *writer) parameters(p *lowering.Program, arguments []ShardedTensor) []ir.Parameter {
	all := slices.Clone(p.Main().Parameters)
	w.parts = map[*ir.Value]*ir.Value{}
	next := 0
	for i := range all {
		if p.ParameterNames[i] == ReplicaIDName {
			continue
		}
		a := arguments[next]
		next++
		if whole := all[i].Value; a.Over.Is() && whole.Type.Dims[a.Over.Dim] == a.Over.Size && w.replicas > 1 {
			part := named(whole.Name+"_part", whole.Type.With(a.Local...))
			part.Origin, w.parts[whole] = whole.Origin, part
			w.wholes = append(w.wholes, wholeValue{whole, part, a.Over, a.Annotation})
			all[i].Value = part
		}
	}
	return all
}

// wholeValue is a parameter of the step that is made of the replicas' parts.
type wholeValue struct {
	value, part *ir.Value
	over        ReplicaShard
	split       logical.Annotation
}

// gathers are the statements that make the whole parameters that the step reads.
func (w *writer) gathers() (list []*ir.Statement) {
	if len(w.wholes) == 0 {
		return nil
	}
	readers := map[*ir.Value][]int{} // of the body
	for i, s := range w.body {
		s.Reads(func(v *ir.Value) {
			if list := readers[v]; len(list) == 0 || list[len(list)-1] != i {
				readers[v] = append(list, i)
			}
		})
	}
	for _, x := range w.wholes {
		if len(readers[x.value]) == 0 {
			continue
		}
		if narrow := w.narrowed(x, readers[x.value]); narrow != nil {
			list = append(list, short("stablehlo.convert", narrow.part, x.part))
			x = *narrow
		}
		dims := slices.Clone(x.part.Type.Dims)
		dims[x.over.Dim] *= w.replicas
		if dims[x.over.Dim] == x.over.Size {
			list = append(list, w.collectives(x.over.gathered(x.split), x.value, x.part)...)
			continue
		}
		padded := named(x.part.Name+"s", x.part.Type.With(dims...))
		list = append(append(list, w.collectives(x.over.gathered(x.split), padded, x.part)...), sliced(x.value, padded))
	}
	return list
}

// narrowed is a parameter in the half precision that all statements which read it convert it to:
// its parts are converted before they are gathered, which sends half the bytes. It is nil if there
// is a statement that reads it otherwise.
func (w *writer) narrowed(x wholeValue, readers []int) *wholeValue {
	half, all := dtypes.InvalidDType, true
	var look func(s *ir.Statement)
	look = func(s *ir.Statement) {
		if slices.Contains(s.Operands, x.value) {
			if half == dtypes.InvalidDType && len(s.Results) == 1 {
				half = s.Results[0].Type.DType
			}
			all = all && s.Op == "stablehlo.convert" && s.Mark == nil && s.Results[0].Type.DType == half
		}
		for _, r := range s.Regions { // the body of a loop over microbatches reads it too
			for _, inner := range r.Body {
				look(inner)
			}
		}
	}
	for _, i := range readers {
		look(w.body[i])
	}
	if !all || !half.IsHalfPrecision() || x.value.Type.DType.Bits() <= half.Bits() {
		return nil
	}
	in := func(v *ir.Value) *ir.Value { return named(v.Name+"_half", ir.Tensor(half, v.Type.Dims...)) }
	narrow := &wholeValue{in(x.value), in(x.part), x.over, x.split}
	w.body = ir.Map(w.body, func(s *ir.Statement) *ir.Statement {
		if slices.Contains(s.Operands, x.value) {
			return unchanged(s.Results[0], narrow.value)
		}
		return s
	})
	return narrow
}

// sliced leaves out the padding of a value.
func sliced(out, in *ir.Value) *ir.Statement {
	rank := in.Type.Rank()
	return inline("stablehlo.slice", out, in).With("limit_indices", ir.Ints(out.Type.Dims)).
		With("start_indices", ir.Ints(make([]int, rank))).With("strides", ir.Ints(slices.Repeat([]int{1}, rank)))
}

// gathers reports whether a statement brings state in parts together, or is the cut that leaves out
// its padding.
func gathers(s *ir.Statement, made map[*ir.Value]*ir.Statement) bool {
	if g, ok := s.Mark.(gathered); ok {
		return g.state
	}
	if s.Op != "stablehlo.slice" || made[s.Operands[0]] == nil {
		return false
	}
	g, ok := made[s.Operands[0]].Mark.(gathered)
	return ok && g.state
}

// unread are the statements that bring state in parts together for nobody: an updated variable that
// stays in parts is gathered where the step may still read it, and a stack of which layers gather
// slices is whole in the precision of the step.
func (fl *flow) unread(parts map[*ir.Value]*ir.Value) map[int]bool {
	var found map[int]bool
	var readers map[*ir.Value]int
	made := map[*ir.Value]*ir.Statement{}
	for i := len(fl.statements) - 1; i >= 0; i-- {
		s := fl.statements[i]
		if len(s.Results) != 1 || len(s.Operands) != 1 {
			continue
		}
		if def, ok := fl.defined[s.Operands[0]]; ok {
			made[s.Operands[0]] = fl.statements[def]
		}
		converts := s.Op == "stablehlo.convert" && parts[s.Operands[0]] != nil
		if !converts && !gathers(s, made) {
			continue
		}
		if readers == nil {
			readers, found = map[*ir.Value]int{}, map[int]bool{}
			for _, uses := range fl.uses {
				for _, v := range uses {
					readers[v]++
				}
			}
		}
		if readers[s.Results[0]] == 0 {
			found[i] = true
			readers[s.Operands[0]]--
		}
	}
	return found
}
