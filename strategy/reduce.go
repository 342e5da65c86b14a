package strategy

import (
	"context"
	"fmt"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/gomlx/core/graph"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/internal/engine/fault"
	"github.com/tpustrategy/tpustrategy/internal/engine/number"
	"github.com/tpustrategy/tpustrategy/internal/engine/scatter"
	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/lowering/spmd"
)

// Reduce combines a value over the replicas, on the devices, like TensorFlow's strategy.reduce. The
// result is the same on each replica, and the caller must close it.
//
// Without axes the replicas' tensors, which must have the same shape, are combined elementwise.
// With axes, each tensor is first summed over the axes, which may be negative, and the sums are
// added. Mean then divides by the number of summed elements of all replicas, so the result is the
// mean over the complete batch even if the replicas have different shapes.
//
// [ReplicaContext.AllReduce] defines the mean of integers. A sum of -0 and -0 may be +0. A sum
// counts a *[Mirrored] value once per replica; its mean without axes is the value itself.
//
// Reduce returns [ErrContext] in replica code, and [ErrOtherStrategy]. It returns an [*Error] of
// kind InvalidArgumentError for different shapes and for a repeated axis, and of kind ValueError
// for an axis that does not exist.
func (s *TPUStrategy) Reduce(ctx context.Context, op ReduceOp, value Value, axes ...int) (*Mirrored, error) {
	if err := s.requireEager(ctx, "reduce",
		"use MergeContext.Reduce, or Reduce and ReduceTo of package eager"); err != nil {
		return nil, err
	}
	if err := checkOwnedBy(s, value); err != nil {
		return nil, err
	}
	if err := op.check("reduce"); err != nil {
		return nil, err
	}
	base := value.base()
	if len(axes) == 0 {
		how, err := base.reduction(op)
		if err != nil {
			return nil, err
		}
		return builtinCall{
			name: fmt.Sprintf("reduce_%s_%c", op, how), values: []Value{value}, mirrored: true,
			results: oneAnnotation(base.annotation),
			step: func(rc *ReplicaContext, in []*graph.Node) []*graph.Node {
				return []*graph.Node{how.apply(rc, op, in[0])}
			},
		}.runMirrored(ctx, s)
	}
	if base.steps > 0 {
		return nil, fault.New(errkind.TypeError, "reduce", "reduce the result of a step", "a value of several steps")
	}
	if err := number.CheckSummable("reduce", base.dtype); err != nil {
		return nil, err
	}
	return reduceAxes(ctx, op, value, axes)
}

// reduction identifies the method of a reduction over the replicas. It is part of the program's
// name.
type reduction byte

const (
	reduceCopy  reduction = 'c' // copy a value that is equal on all replicas
	reduceFirst reduction = '1' // select the value of replica 0
	reduceAll   reduction = 'r'
)

// reduction returns the method by which v is reduced over the replicas, without axes.
func (v *deviceValue) reduction(op ReduceOp) (reduction, error) {
	s := v.strategy
	switch {
	case v.steps > 0:
		return 0, fault.New(errkind.TypeError, "reduce", "reduce the result of a step", "a value of several steps")
	case s.replicas == 1 && !number.IsSummable(v.dtype):
		return reduceCopy, nil // one tensor needs no sum
	}
	if err := number.CheckSummable("reduce", v.dtype); err != nil {
		return 0, err
	}
	switch {
	case v.replicaShapes != nil:
		return 0, fault.New(errkind.InvalidArgumentError, "reduce", "give an axis to reduce, or pad the batches",
			"replicas have different shapes %v", v.replicaShapes)
	case s.replicas == 1 && v.perReplica && s.opts.Semantics == TensorFlowMirrored:
		return reduceCopy, nil // one replica: an integer keeps its dtype
	case !v.perReplica && op == Mean:
		return reduceCopy, nil
	case !v.perReplica && s.opts.Semantics == TensorFlowMirrored:
		return 0, fault.New(errkind.AssertionError, "reduce", "use MEAN, or multiply by the number of replicas",
			"SUM of a mirrored value")
	case op == Mean && v.dtype.IsInt() && s.opts.Semantics == TensorFlowTPU:
		return 0, errIntegerMean("reduce", v.dtype)
	}
	return reduceAll, nil
}

func (how reduction) apply(rc *ReplicaContext, op ReduceOp, x *graph.Node) *graph.Node {
	switch {
	case how == reduceCopy:
		return x
	case how == reduceFirst:
		return rc.firstReplica(x)
	case op == Mean && x.DType().IsInt():
		return rc.meanOfIntegers("reduce", x)
	}
	return reduceEager(op, x, rc.strategy.replicas)
}

// reduceEager reduces x over the replicas outside of steps, where precision matters more than the
// amount of communication. It computes a mean of half-precision values in float32, so that the
// result is rounded only once.
func reduceEager(op ReduceOp, x *graph.Node, replicas int) *graph.Node {
	if op != Mean || !x.DType().IsHalfPrecision() {
		return allReduce(op, x, replicas)
	}
	return graph.ConvertDType(allReduce(op, graph.ConvertDType(x, dtypes.Float32), replicas), x.DType())
}

// meanOfIntegers returns the mean of integers over axes and over the replicas. It divides the exact
// sum by the number of elements. A sum of quotients would be rounded several times.
func (rc *ReplicaContext) meanOfIntegers(op string, x *graph.Node, axes ...int) *graph.Node {
	if rc.strategy.opts.Semantics == TensorFlowTPU {
		panic(errIntegerMean(op, x.DType()))
	}
	count := rc.strategy.replicas
	for _, axis := range axes {
		count *= x.Shape().Dim(axis)
	}
	mean := graph.DivScalar(sumOfIntegers(x, axes...), float64(count))
	return graph.ConvertDType(mean, meanDType(x.DType()))
}

// errIntegerMean reports a mean of integers, which [TensorFlowTPU] semantics do not support.
func errIntegerMean(op string, dtype dtypes.DType) error {
	return fault.New(errkind.TypeError, op, "convert it to a float, or leave Options.Semantics at its default",
		"MEAN of dtype %s", dtype)
}

// meanDType returns the dtype of the mean of integers. It is the dtype that TensorFlow's true
// division returns.
func meanDType(dtype dtypes.DType) dtypes.DType {
	if dtype.Size() <= 2 {
		return dtypes.Float32
	}
	return dtypes.Float64
}

func reduceAxes(ctx context.Context, op ReduceOp, value Value, axes []int) (*Mirrored, error) {
	base := value.base()
	s := base.strategy
	rank := len(base.shape)
	reduced := make([]bool, rank)
	for _, axis := range axes {
		if axis < -rank || axis >= rank {
			return nil, fault.New(errkind.ValueError, "reduce", "name an axis of the tensor",
				"axes %v of a tensor of rank %d", axes, rank)
		}
		if reduced[(axis+rank)%rank] {
			return nil, fault.New(errkind.InvalidArgumentError, "reduce", "name each axis once",
				"axes %v of a tensor of rank %d", axes, rank)
		}
		reduced[(axis+rank)%rank] = true
	}
	// count is the number of elements in each sum, over all replicas.
	count := 0
	for r := range s.replicas {
		n := 1
		for d, size := range base.replicaShape(r) {
			if reduced[d] {
				n *= size
			} else if size != base.replicaShape(0)[d] {
				return nil, fault.New(errkind.InvalidArgumentError, "reduce", "reduce the dimension that differs",
					"replicas have different shapes %v in dimension %d", base.replicaShapes, d)
			}
		}
		count += n
	}
	var dims []int
	for d := range reduced {
		if reduced[d] {
			dims = append(dims, d)
		}
	}
	values := []Value{value}
	name := fmt.Sprintf("reduce_%s_%v", op, dims)
	if op == Mean {
		total, err := s.Mirror(ctx, float64(count), logical.Annotation{})
		if err != nil {
			return nil, err
		}
		defer total.Close()
		values = append(values, total)
	}
	ragged := base.replicaShapes != nil
	if ragged {
		sizes, err := base.newSizesValue(ctx)
		if err != nil {
			return nil, err
		}
		defer sizes.Close()
		values = append(values, sizes)
		name += "_ragged"
	}
	return builtinCall{
		name: name, values: values, mirrored: true,
		step: func(rc *ReplicaContext, in []*graph.Node) []*graph.Node {
			x := in[0]
			if ragged {
				x = graph.Where(scatter.PaddingMask(x, in[len(in)-1]), x, graph.ZerosLike(x))
			}
			dtype := x.DType()
			if op == Mean && dtype.IsHalfPrecision() {
				// Half precision overflows for the sum of a batch and for the number of its
				// elements.
				x = graph.ConvertDType(x, dtypes.Float32)
			}
			if op == Mean && dtype.IsInt() {
				sum := sumOfIntegers(x, dims...)
				return []*graph.Node{graph.ConvertDType(graph.Div(sum, in[1]), meanDType(dtype))}
			}
			sum := spmd.AllReduce(graph.ReduceSum(x, dims...), spmd.Sum)
			if op == Mean {
				sum = graph.ConvertDType(graph.Div(sum, graph.ConvertDType(in[1], sum.DType())), dtype)
			}
			return []*graph.Node{sum}
		},
	}.runMirrored(ctx, s)
}

// sumOfIntegers sums x over axes and over the replicas, and returns a float64 that is rounded once.
// It sums 64-bit integers in two halves, so that up to 2^31 of them do not overflow.
func sumOfIntegers(x *graph.Node, axes ...int) *graph.Node {
	sum := func(x *graph.Node) *graph.Node {
		if len(axes) > 0 {
			x = graph.ReduceSum(x, axes...)
		}
		return spmd.AllReduce(x, spmd.Sum)
	}
	if x.DType() != dtypes.Int64 && x.DType() != dtypes.Uint64 {
		return sum(graph.ConvertDType(x, dtypes.Float64))
	}
	unit := graph.Scalar(x.Graph(), x.DType(), 1<<32)
	high := graph.Div(x, unit)
	low := graph.Sub(x, graph.Mul(high, unit))
	whole := graph.MulScalar(graph.ConvertDType(sum(high), dtypes.Float64), float64(1<<32))
	return graph.Add(whole, graph.ConvertDType(sum(low), dtypes.Float64))
}
