package strategy

import (
	"strings"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/internal/engine/fault"
	"github.com/tpustrategy/tpustrategy/internal/enum"
)

// VariableSynchronization selects when the components of a variable are combined, like TensorFlow's
// tf.VariableSynchronization.
type VariableSynchronization int

const (
	// SyncAuto (AUTO) means OnWrite.
	SyncAuto VariableSynchronization = iota
	// SyncNone (NONE) is rejected by strategies, as in TensorFlow.
	SyncNone
	// OnWrite (ON_WRITE) combines writes: the variable is mirrored.
	OnWrite
	// OnRead (ON_READ) combines reads, as in tf.keras.metrics: each replica writes its own
	// component without communication, and a cross-replica read combines the components.
	OnRead
)

// String returns TensorFlow's name, such as ON_WRITE.
func (s VariableSynchronization) String() string {
	return enum.Name(s, "AUTO", "NONE", "ON_WRITE", "ON_READ")
}

// VariableAggregation selects how writes to an OnWrite variable, or the components of an OnRead
// variable, are combined, like TensorFlow's tf.VariableAggregation.
type VariableAggregation int

const (
	// AggregateNone (NONE) combines nothing. A write by a replica is an error unless
	// [VariableOptions].LocalWrites is set.
	AggregateNone VariableAggregation = iota
	// AggregateSum (SUM) adds the replicas' values.
	AggregateSum
	// AggregateMean (MEAN) averages the replicas' values.
	AggregateMean
	// AggregateFirst (ONLY_FIRST_REPLICA) selects the value of replica 0.
	AggregateFirst
)

// String returns TensorFlow's name, such as ONLY_FIRST_REPLICA.
func (a VariableAggregation) String() string {
	return enum.Name(a, "NONE", "SUM", "MEAN", "ONLY_FIRST_REPLICA")
}

// ReduceOp converts SUM and MEAN to a reduction. For any other aggregation it returns an error of
// kind ValueError.
func (a VariableAggregation) ReduceOp() (ReduceOp, error) {
	switch a {
	case AggregateSum:
		return Sum, nil
	case AggregateMean:
		return Mean, nil
	}
	return 0, fault.New(errkind.ValueError, "aggregation", "create the variable with AggregateSum or AggregateMean",
		"%s is no reduction", a)
}

// ParseReduceOp parses the name of a reduction, such as "sum" or "MEAN".
func ParseReduceOp(name string) (ReduceOp, error) {
	switch strings.ToUpper(name) {
	case "SUM":
		return Sum, nil
	case "MEAN":
		return Mean, nil
	}
	return 0, fault.New(errkind.ValueError, "reduction", "use SUM or MEAN", "%q is none", name)
}

func (op ReduceOp) check(call string) error {
	if op != Sum && op != Mean {
		return fault.UnknownReduction(call, op)
	}
	return nil
}

// Padding selects how a function handles values whose replicas have different shapes, such as the
// last batch of a dataset. A program has fixed shapes, so the tensors are padded with zeros at the
// end of each dimension. Batches without padding use the same program in all modes.
type Padding int

const (
	// NoPadding rejects such values with an [*ArgumentError].
	NoPadding Padding = iota
	// MaskPadding computes the same results as without padding: reductions and gradients exclude
	// the padding, means divide by the actual sizes, and results are truncated. TensorFlow's
	// RunOptions call it dynamic batch size. An op that cannot exclude the padding, such as a
	// reverse of the padded dimension, is a [*TraceError] that wraps a [*ragged.Error]. Each padded
	// shape has its own program, for which the step function is called three times, and two more
	// times for each further padded size.
	MaskPadding
	// KeepPadding is for steps that mask the padding themselves. [ReplicaContext.ValidSize] returns
	// the actual sizes. The results contain the rows that the step computes from padding.
	KeepPadding
)

func (p Padding) String() string { return enum.Name(p, "NoPadding", "MaskPadding", "KeepPadding") }

// Semantics selects which of TensorFlow's strategies to follow where their behavior differs.
type Semantics int

const (
	// OwnSemantics follows TPUStrategy without two limits of TensorFlow's ops: the mean of integers
	// is a float, and int64 values can be summed in a step.
	OwnSemantics       Semantics = iota
	TensorFlowTPU                // follows TensorFlow's TPUStrategy
	TensorFlowMirrored           // follows TensorFlow's MirroredStrategy
)

func (s Semantics) String() string { return enum.Name(s, "default", "TPUStrategy", "MirroredStrategy") }

// ReduceOp selects how the replicas' values are combined, like TensorFlow's tf.distribute.ReduceOp.
type ReduceOp int

const (
	Sum  ReduceOp = iota // SUM
	Mean                 // MEAN: the sum divided by the number of replicas
)

func (op ReduceOp) String() string { return enum.Name(op, "SUM", "MEAN") }

// ScatterOp selects how [ReplicaContext.Scatter] combines updates with the rows of a variable.
type ScatterOp int

const (
	ScatterAdd ScatterOp = iota
	ScatterSub
	ScatterMul
	ScatterDiv
	// ScatterUpdate replaces the rows.
	ScatterUpdate
	// ScatterMin and ScatterMax store the elementwise minimum and maximum.
	ScatterMin
	ScatterMax
)

// String returns TensorFlow's name, such as scatter_add.
func (op ScatterOp) String() string {
	return enum.Name(op, "scatter_add", "scatter_sub", "scatter_mul", "scatter_div", "scatter_update",
		"scatter_min", "scatter_max")
}
