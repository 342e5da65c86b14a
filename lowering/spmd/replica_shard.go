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

// ReplicaShard describes a tensor that is sharded over the replicas along one dimension. All shards
// have the same size: the last shards are padded if the number of replicas does not divide the
// dimension. The zero value is a tensor that each replica has in full.
type ReplicaShard struct {
	// Dim is the sharded dimension. Size is its size in the unsharded tensor, without padding.
	Dim, Size int
}

// Is reports whether the tensor is sharded.
func (o ReplicaShard) Is() bool { return o.Size > 0 }

// Part returns the size of dimension Dim in a shard, for the given number of replicas.
func (o ReplicaShard) Part(replicas int) int { return (o.Size + replicas - 1) / replicas }

// Parts returns the dimensions of a shard of a tensor with the given dimensions.
func (o ReplicaShard) Parts(dims []int, replicas int) []int {
	dims = slices.Clone(dims)
	if o.Is() {
		dims[o.Dim] = o.Part(replicas)
	}
	return dims
}

// Wholes returns the dimensions of the unsharded tensor for shards with the given dimensions.
func (o ReplicaShard) Wholes(dims []int) []int {
	dims = slices.Clone(dims)
	if o.Is() {
		dims[o.Dim] = o.Size
	}
	return dims
}

// String describes the sharding, such as "dimension 1 of 512 over the replicas".
func (o ReplicaShard) String() string {
	if !o.Is() {
		return "whole on each replica"
	}
	return fmt.Sprintf("dimension %d of %d over the replicas", o.Dim, o.Size)
}

// Whole returns the unsharded tensor, the same on each replica, by one all-gather of the shards.
// split is the annotation of the tensor over the logical devices, each of which gathers its own
// shard only. The gradient is [ScatterPart]. It panics with an error of kind InvalidArgumentError.
func Whole(part *graph.Node, o ReplicaShard, split logical.Annotation) *graph.Node {
	t := traceOf("whole", part)
	t.checkOver("whole", part, o, o.Part(t.opts.Replicas))
	return cut(t.gather(part, o.gathered(split)), o)
}

// ScatterPart sums x over the replicas and returns the replica's shard of the sum, by one
// reduce-scatter. split is the annotation of x over the logical devices, each of which sums its own
// shard only. The gradient is [Whole]. It panics with an error of kind InvalidArgumentError.
func ScatterPart(x *graph.Node, o ReplicaShard, split logical.Annotation) *graph.Node {
	t := traceOf("scatter_part", x)
	t.checkOver("scatter_part", x, o, o.Size)
	return t.scatter(padded0(x, o, t.opts.Replicas), o.gathered(split))
}

// gathered returns the mark of the gathered shards.
func (o ReplicaShard) gathered(split logical.Annotation) gathered {
	return gathered{axis: o.Dim, state: true, split: split}
}

// OwnPart returns the replica's shard of x, which must be the same on all replicas. It needs no
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

// PartOf returns the replica's shard of a parameter whose argument is sharded. It needs no
// communication, and the step does not gather the parameter for it. No gradient flows to the
// parameter: take the gradient with respect to the shard.
func PartOf(parameter *graph.Node, o ReplicaShard) *graph.Node {
	t := traceOf("part_of", parameter)
	t.checkOver("part_of", parameter, o, o.Size)
	if parameter.Type() != graph.NodeTypeParameter {
		panic(uncollected("part_of", parameter.Shape().Dimensions, "not a parameter of the step", "use OwnPart"))
	}
	return t.part(parameter, o, ownedPart{})
}

// part adds a node with the shape of a shard of x. No gradient flows through it.
func (t *Trace) part(x *graph.Node, o ReplicaShard, m mark) *graph.Node {
	return t.emit(x, func(f *lowering.Function, x *stablehlo.Value) (*stablehlo.Value, error) {
		shape := x.Shape().Clone()
		shape.Dimensions = o.Parts(shape.Dimensions, t.opts.Replicas)
		return f.Mark(x, shape, m)
	}, func(*graph.Node) *graph.Node { return nil })
}

// GradientTo returns x. Gradients flow to part instead of x: the adjoint of part is
// gradient(adjoint of x).
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

// PartGradient returns a placeholder for the replica's shard of x. Its value is zeros. It is used
// only as a node to take gradients with respect to, see [GradientTo].
func PartGradient(x *graph.Node, o ReplicaShard) *graph.Node {
	t := traceOf("part_gradient", x)
	t.checkOver("part_gradient", x, o, o.Size)
	return t.part(x, o, zeros{})
}

// checkOver panics if a tensor does not have the dimensions of o.
func (t *Trace) checkOver(op string, x *graph.Node, o ReplicaShard, size int) {
	if dims := x.Shape().Dimensions; !o.Is() || o.Dim < 0 || o.Dim >= len(dims) || dims[o.Dim] != size {
		panic(uncollected(op, dims, fmt.Sprintf("not what %s says of %d replicas", o, t.opts.Replicas), "give the tensor that was cut, along the dimension that was"))
	}
}

// padded0 pads a tensor with zeros so that all shards have the same size.
func padded0(x *graph.Node, o ReplicaShard, replicas int) *graph.Node {
	more := o.Part(replicas)*replicas - o.Size
	if more == 0 {
		return x
	}
	axes := make([]graph.PadAxis, x.Rank())
	axes[o.Dim].End = more
	return graph.Pad(x, graph.Const(x.Graph(), shapes.CastAsDType(0, x.DType())), axes...)
}

// cut removes the padding.
func cut(x *graph.Node, o ReplicaShard) *graph.Node {
	if x.Shape().Dimensions[o.Dim] == o.Size {
		return x
	}
	return graph.SliceAxis(x, o.Dim, graph.AxisRange(0, o.Size))
}

// ownedPart is the mark of the replica's shard of a parameter.
type ownedPart struct{}

func (ownedPart) write(w *writer, out, in *ir.Value) *ir.Statement {
	if part := w.parts[in]; part != nil {
		return unchanged(out, part)
	}
	return unchanged(out, in)
}

// parameters returns the step's parameters, with shards instead of sharded tensors that the step
// reads in full.
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

// wholeValue is a parameter of the step that is gathered from the replicas' shards.
type wholeValue struct {
	value, part *ir.Value
	over        ReplicaShard
	split       logical.Annotation
}

// gathers returns the statements that gather the sharded parameters that the step reads in full.
func (w *writer) gathers() (list []*ir.Statement) {
	if len(w.wholes) == 0 {
		return nil
	}
	readers := map[*ir.Value][]int{} // statements of the body
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

// narrowed returns a sharded parameter that is gathered in half precision, if all its readers
// convert it to that dtype: the shards are converted before the gather, which sends half the bytes.
// It returns nil if a statement reads the parameter in another way.
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

// sliced removes the padding of a value.
func sliced(out, in *ir.Value) *ir.Statement {
	rank := in.Type.Rank()
	return inline("stablehlo.slice", out, in).With("limit_indices", ir.Ints(out.Type.Dims)).
		With("start_indices", ir.Ints(make([]int, rank))).With("strides", ir.Ints(slices.Repeat([]int{1}, rank)))
}

// gathers reports whether a statement gathers sharded state, or slices the padding off the gathered
// tensor.
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

// unread returns the statements that gather sharded state without a reader. An updated variable
// that stays sharded is gathered where the step may still read it, and a stack from which layers
// gather slices is gathered in the precision of the step.
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
