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

// ReplicaShard describes how a tensor is sharded over the replicas along one dimension. All shards
// have the same size, so the last shards are padded if the number of replicas does not divide the
// dimension. The zero value describes a tensor that is not sharded.
type ReplicaShard struct {
	// Dim is the sharded dimension. Size is its size in the unsharded tensor, without padding.
	Dim, Size int
}

// IsSharded reports whether the tensor is sharded over the replicas.
func (o ReplicaShard) IsSharded() bool { return o.Size > 0 }

// ShardSize returns the size of dimension Dim of a shard.
func (o ReplicaShard) ShardSize(replicas int) int { return (o.Size + replicas - 1) / replicas }

// ShardDims returns the dimensions of a shard. dims are the dimensions of the unsharded tensor.
func (o ReplicaShard) ShardDims(dims []int, replicas int) []int {
	dims = slices.Clone(dims)
	if o.IsSharded() {
		dims[o.Dim] = o.ShardSize(replicas)
	}
	return dims
}

// UnshardedDims returns the dimensions of the unsharded tensor. dims are the dimensions of a shard.
func (o ReplicaShard) UnshardedDims(dims []int) []int {
	dims = slices.Clone(dims)
	if o.IsSharded() {
		dims[o.Dim] = o.Size
	}
	return dims
}

// String describes the sharding, such as "dimension 1 of 512 over the replicas".
func (o ReplicaShard) String() string {
	if !o.IsSharded() {
		return "not sharded over the replicas"
	}
	return fmt.Sprintf("dimension %d of %d over the replicas", o.Dim, o.Size)
}

// GatherShards returns the unsharded tensor, the same on each replica, by one all-gather. split is
// the tensor's annotation over the logical devices, each of which gathers only its own shard. The
// gradient is [ReduceScatterShard]. GatherShards panics with an error of kind InvalidArgumentError.
func GatherShards(shard *graph.Node, o ReplicaShard, split logical.Annotation) *graph.Node {
	t := requireTrace("whole", shard)
	t.checkShard("whole", shard, o, o.ShardSize(t.opts.Replicas))
	return removePadding(t.emitGather(shard, o.gather(split)), o)
}

// ReduceScatterShard returns the replica's shard of the sum of x over the replicas, by one
// reduce-scatter. split is the annotation of x over the logical devices, each of which sums only
// its own shard. The gradient is [GatherShards]. ReduceScatterShard panics with an error of kind
// InvalidArgumentError.
func ReduceScatterShard(x *graph.Node, o ReplicaShard, split logical.Annotation) *graph.Node {
	t := requireTrace("scatter_part", x)
	t.checkShard("scatter_part", x, o, o.Size)
	return t.emitReduceScatter(padToShards(x, o, t.opts.Replicas), o.gather(split))
}

func (o ReplicaShard) gather(split logical.Annotation) collectivePlaceholder {
	m := gatherOverReplicas(o.Dim)
	m.isState, m.split = true, split
	return m
}

// SliceShard returns the replica's shard of x, which must be the same on all replicas. It uses no
// communication. It panics with an error of kind InvalidArgumentError.
func SliceShard(x *graph.Node, o ReplicaShard) *graph.Node {
	t := requireTrace("own_part", x)
	t.checkShard("own_part", x, o, o.Size)
	x = padToShards(x, o, t.opts.Replicas)
	if t.opts.Replicas == 1 {
		return x
	}
	g, size := x.Graph(), o.ShardSize(t.opts.Replicas)
	starts := slices.Repeat([]*graph.Node{graph.Const(g, int32(0))}, x.Rank())
	starts[o.Dim] = graph.Mul(ReplicaID(g), graph.Const(g, int32(size)))
	return graph.DynamicSlice(x, starts, o.ShardDims(x.Shape().Dimensions, t.opts.Replicas))
}

// ParameterShard returns the replica's shard of a parameter whose argument is sharded. It uses no
// communication, and the step does not gather the parameter for it. No gradient flows to the
// parameter: compute the gradient with respect to the shard instead.
func ParameterShard(parameter *graph.Node, o ReplicaShard) *graph.Node {
	t := requireTrace("part_of", parameter)
	t.checkShard("part_of", parameter, o, o.Size)
	if parameter.Type() != graph.NodeTypeParameter {
		panic(collectiveError("part_of", parameter.Shape().Dimensions, "not a parameter of the step", "use OwnPart"))
	}
	return t.emitShard(parameter, o, parameterShardPlaceholder{})
}

// emitShard adds a node with the shape of a shard of x. No gradient flows through the node.
func (t *Trace) emitShard(x *graph.Node, o ReplicaShard, m placeholder) *graph.Node {
	return t.emit(x, func(f *lowering.Function, x *stablehlo.Value) (*stablehlo.Value, error) {
		shape := x.Shape().Clone()
		shape.Dimensions = o.ShardDims(shape.Dimensions, t.opts.Replicas)
		return f.AddPlaceholder(x, shape, m)
	}, func(*graph.Node) *graph.Node { return nil })
}

// RedirectGradient returns x, but gradients flow to shard instead of x. gradient converts the
// adjoint of x to the adjoint of shard.
func RedirectGradient(shard, x *graph.Node, gradient func(adjoint *graph.Node) *graph.Node) *graph.Node {
	t := requireTrace("gradient_to", x)
	var value *stablehlo.Value
	t.emit(x, func(_ *lowering.Function, x *stablehlo.Value) (*stablehlo.Value, error) {
		value = x
		return x, nil
	}, nil)
	y := t.emit(shard, func(*lowering.Function, *stablehlo.Value) (*stablehlo.Value, error) { return value, nil },
		gradient)
	t.cloners[y] = func(copied func(input *graph.Node) *graph.Node) *graph.Node {
		return RedirectGradient(copied(shard), copied(x), gradient)
	}
	return y
}

// GradientPlaceholder returns zeros with the shape of the replica's shard of x. Pass it to
// [RedirectGradient] to compute gradients with respect to a shard.
func GradientPlaceholder(x *graph.Node, o ReplicaShard) *graph.Node {
	t := requireTrace("part_gradient", x)
	t.checkShard("part_gradient", x, o, o.Size)
	return t.emitShard(x, o, zerosPlaceholder{})
}

// checkShard panics if dimension o.Dim of x does not have the given size.
func (t *Trace) checkShard(op string, x *graph.Node, o ReplicaShard, size int) {
	if dims := x.Shape().Dimensions; !o.IsSharded() || o.Dim < 0 || o.Dim >= len(dims) || dims[o.Dim] != size {
		panic(collectiveError(op, dims, fmt.Sprintf("it does not match the sharding %s with %d replicas", o,
			t.opts.Replicas), "pass the tensor and the dimension that the ReplicaShard describes"))
	}
}

func padToShards(x *graph.Node, o ReplicaShard, replicas int) *graph.Node {
	more := o.ShardSize(replicas)*replicas - o.Size
	if more == 0 {
		return x
	}
	axes := make([]graph.PadAxis, x.Rank())
	axes[o.Dim].End = more
	return graph.Pad(x, graph.Const(x.Graph(), shapes.CastAsDType(0, x.DType())), axes...)
}

func removePadding(x *graph.Node, o ReplicaShard) *graph.Node {
	if x.Shape().Dimensions[o.Dim] == o.Size {
		return x
	}
	return graph.SliceAxis(x, o.Dim, graph.AxisRange(0, o.Size))
}

type parameterShardPlaceholder struct{}

func (parameterShardPlaceholder) lower(w *assembler, out, in *ir.Value) *ir.Statement {
	if shard := w.parameterShards[in]; shard != nil {
		return copyOp(out, shard)
	}
	return copyOp(out, in)
}

// shardParameters returns the parameters of the assembled step. A sharded parameter that the traced
// step reads unsharded is replaced by its shard.
func (w *assembler) shardParameters(p *lowering.Program, arguments []ShardedTensor) []ir.Parameter {
	all := slices.Clone(p.Main().Parameters)
	w.parameterShards = map[*ir.Value]*ir.Value{}
	next := 0
	for i := range all {
		if p.ParameterNames[i] == ReplicaIDName {
			continue
		}
		a := arguments[next]
		next++
		if unsharded := all[i].Value; a.ReplicaShard.IsSharded() &&
			unsharded.Type.Dims[a.ReplicaShard.Dim] == a.ReplicaShard.Size && w.replicas > 1 {
			shard := newValue(unsharded.Name+"_part", unsharded.Type.WithDims(a.LocalDims...))
			shard.Origin, w.parameterShards[unsharded] = unsharded.Origin, shard
			w.gatheredParameters = append(w.gatheredParameters, gatheredParameter{unsharded, shard, a.ReplicaShard,
				a.Annotation})
			all[i].Value = shard
		}
	}
	return all
}

type gatheredParameter struct {
	value, shard *ir.Value
	replicaShard ReplicaShard
	annotation   logical.Annotation
}

// gatherParameters returns the statements that gather parameters. They gather each parameter whose
// argument is sharded over the replicas and that the step reads as an unsharded tensor.
func (w *assembler) gatherParameters() (list []*ir.Statement, err error) {
	if len(w.gatheredParameters) == 0 {
		return nil, nil
	}
	readers := map[*ir.Value][]int{} // statements of the body
	for i, s := range w.body {
		s.WalkOperands(func(v *ir.Value) {
			if list := readers[v]; len(list) == 0 || list[len(list)-1] != i {
				readers[v] = append(list, i)
			}
		})
	}
	for _, x := range w.gatheredParameters {
		if len(readers[x.value]) == 0 {
			continue
		}
		if narrow := w.gatherInHalfPrecision(x, readers[x.value]); narrow != nil {
			list = append(list, customOp("stablehlo.convert", narrow.shard, x.shard))
			x = *narrow
		}
		dims := slices.Clone(x.shard.Type.Dims)
		dims[x.replicaShard.Dim] *= w.replicas
		collective, out := x.replicaShard.gather(x.annotation), x.value
		collective.axes = replicaAxes
		isPadded := dims[x.replicaShard.Dim] != x.replicaShard.Size
		if isPadded {
			out = newValue(x.shard.Name+"s", x.shard.Type.WithDims(dims...))
		}
		gather, err := collective.expand(w, out, x.shard)
		if err != nil {
			return nil, err
		}
		list = append(list, gather...)
		if isPadded {
			list = append(list, removePaddingOp(x.value, out))
		}
	}
	return list, nil
}

// gatherInHalfPrecision returns a parameter that is gathered in half precision, if all readers
// convert it to the same half-precision dtype. The gather then sends half the bytes. Otherwise it
// returns nil.
func (w *assembler) gatherInHalfPrecision(x gatheredParameter, readers []int) *gatheredParameter {
	half, all := dtypes.InvalidDType, true
	var visit func(s *ir.Statement)
	visit = func(s *ir.Statement) {
		if slices.Contains(s.Operands, x.value) {
			if half == dtypes.InvalidDType && len(s.Results) == 1 {
				half = s.Results[0].Type.DType
			}
			all = all && s.Op == "stablehlo.convert" && s.Placeholder == nil && s.Results[0].Type.DType == half
		}
		for _, r := range s.Regions { // the body of a loop over microbatches reads it too
			for _, inner := range r.Body {
				visit(inner)
			}
		}
	}
	for _, i := range readers {
		visit(w.body[i])
	}
	if !all || !half.IsHalfPrecision() || x.value.Type.DType.Bits() <= half.Bits() {
		return nil
	}
	in := func(v *ir.Value) *ir.Value { return newValue(v.Name+"_half", ir.TensorType(half, v.Type.Dims...)) }
	converted := &gatheredParameter{in(x.value), in(x.shard), x.replicaShard, x.annotation}
	w.body = ir.Map(w.body, func(s *ir.Statement) *ir.Statement {
		if slices.Contains(s.Operands, x.value) {
			return copyOp(s.Results[0], converted.value)
		}
		return s
	})
	return converted
}

func removePaddingOp(out, in *ir.Value) *ir.Statement {
	rank := in.Type.Rank()
	return genericOp("stablehlo.slice", out, in).AddAttribute("limit_indices", ir.Ints(out.Type.Dims)).
		AddAttribute("start_indices", ir.Ints(make([]int, rank))).AddAttribute("strides",
		ir.Ints(slices.Repeat([]int{1}, rank)))
}

// gathersState reports whether a statement gathers sharded state, or removes the padding of the
// gathered tensor.
func gathersState(s *ir.Statement, definitions map[*ir.Value]*ir.Statement) bool {
	if g, ok := s.Placeholder.(collectivePlaceholder); ok {
		return g.isState
	}
	if s.Op != "stablehlo.slice" || definitions[s.Operands[0]] == nil {
		return false
	}
	g, ok := definitions[s.Operands[0]].Placeholder.(collectivePlaceholder)
	return ok && g.isState
}

// unreadGathers returns the statements that gather sharded state and whose results are not read.
// Such statements exist because GatherShards is also called for updated variables that the step
// does not read, and for stacked variables that layers gather slice by slice.
func (fl *dataFlow) unreadGathers(parameterShards map[*ir.Value]*ir.Value) map[int]bool {
	var found map[int]bool
	var readers map[*ir.Value]int
	definitions := map[*ir.Value]*ir.Statement{}
	for i := len(fl.statements) - 1; i >= 0; i-- {
		s := fl.statements[i]
		if len(s.Results) != 1 || len(s.Operands) != 1 {
			continue
		}
		if def, ok := fl.defined[s.Operands[0]]; ok {
			definitions[s.Operands[0]] = fl.statements[def]
		}
		converts := s.Op == "stablehlo.convert" && parameterShards[s.Operands[0]] != nil
		if !converts && !gathersState(s, definitions) {
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
