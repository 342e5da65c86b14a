package strategy

import (
	"strings"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/internal/engine/fault"
	"github.com/tpustrategy/tpustrategy/internal/enum"
)

// VariableSynchronization specifies when the components of a variable are combined: TensorFlow's
// tf.VariableSynchronization.
type VariableSynchronization int

const (
	// SyncAuto is TensorFlow's AUTO; it means OnWrite.
	SyncAuto VariableSynchronization = iota
	// SyncNone is TensorFlow's NONE. Strategies reject it, as in TensorFlow.
	SyncNone
	// OnWrite is TensorFlow's ON_WRITE. The variable is mirrored: a write reaches all replicas.
	OnWrite
	// OnRead is TensorFlow's ON_READ, the synchronization of tf.keras.metrics. Each replica has its
	// own component, which it writes without communication. A cross-replica read combines the
	// components.
	OnRead
)

// String returns TensorFlow's name.
func (s VariableSynchronization) String() string {
	return enum.Name(s, "AUTO", "NONE", "ON_WRITE", "ON_READ")
}

// VariableAggregation specifies how the replicas' values of a variable are combined, on a write of
// an OnWrite variable and on a read of an OnRead variable: TensorFlow's tf.VariableAggregation.
type VariableAggregation int

const (
	// AggregateNone, TensorFlow's NONE, combines nothing. A write by a replica is an error unless
	// [VariableOptions.LocalWrites] allows it.
	AggregateNone VariableAggregation = iota
	// AggregateSum, TensorFlow's SUM, adds the replicas' values.
	AggregateSum
	// AggregateMean, TensorFlow's MEAN, averages the replicas' values.
	AggregateMean
	// AggregateFirst, TensorFlow's ONLY_FIRST_REPLICA, selects the value of replica 0.
	AggregateFirst
)

// String returns TensorFlow's name.
func (a VariableAggregation) String() string {
	return enum.Name(a, "NONE", "SUM", "MEAN", "ONLY_FIRST_REPLICA")
}

// ReduceOp returns the reduction of the aggregation. NONE and ONLY_FIRST_REPLICA have none: the
// error is of kind ValueError.
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

// ParseReduceOp returns the reduction with the name "sum" or "mean", in upper or lower case.
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
// last batch of a dataset. A program has fixed shapes: the replicas' tensors are padded with zeros,
// at the end of each dimension, to the largest size. All modes share one program for batches
// without padding.
type Padding int

const (
	// NoPadding rejects such values with an [*ArgumentError].
	NoPadding Padding = iota
	// MaskPadding computes the results that the step would have without padding: reductions and
	// gradients exclude the padding, means divide by the actual sizes, and results are truncated to
	// the actual sizes. An op that cannot exclude the padding, such as a reverse along the padded
	// dimension, is a [*TraceError] that wraps a [*ragged.Error]. TensorFlow's RunOptions call this
	// mode the dynamic batch size. One program is compiled for each padded shape. The step function
	// is called three times for the first, and two more times for each further size that differs.
	MaskPadding
	// KeepPadding is for a step that masks the padding itself. The step receives the zeros, and
	// [ReplicaContext.ValidSize] returns the actual sizes. The results include the rows that the
	// step computes from the padding.
	KeepPadding
)

// String returns the constant's name, such as "MaskPadding".
func (p Padding) String() string { return enum.Name(p, "NoPadding", "MaskPadding", "KeepPadding") }

// Semantics selects the TensorFlow strategy to imitate where TensorFlow's strategies differ.
type Semantics int

const (
	// OwnSemantics behaves like TensorFlow's TPUStrategy without two limits of its ops: the mean of
	// integers is a float64, and int64 values can be summed in a step.
	OwnSemantics Semantics = iota
	// TensorFlowTPU behaves like TensorFlow's TPUStrategy, with these limits.
	TensorFlowTPU
	// TensorFlowMirrored behaves like TensorFlow's MirroredStrategy.
	TensorFlowMirrored
)

// String returns the name of the semantics.
func (s Semantics) String() string { return enum.Name(s, "default", "TPUStrategy", "MirroredStrategy") }

// ReduceOp specifies how the replicas' values are combined: TensorFlow's tf.distribute.ReduceOp.
type ReduceOp int

const (
	// Sum, TensorFlow's SUM, adds the replicas' values.
	Sum ReduceOp = iota
	// Mean, TensorFlow's MEAN, divides the sum of the replicas' values by the number of replicas.
	Mean
)

// String returns TensorFlow's name, SUM or MEAN.
func (op ReduceOp) String() string { return enum.Name(op, "SUM", "MEAN") }

// ScatterOp specifies how [ReplicaContext.Scatter] combines updates with the rows of a variable.
type ScatterOp int

const (
	// ScatterAdd adds to the variable's rows: TensorFlow's scatter_add.
	ScatterAdd ScatterOp = iota
	// ScatterSub subtracts from the variable's rows.
	ScatterSub
	// ScatterMul multiplies the variable's rows.
	ScatterMul
	// ScatterDiv divides the variable's rows.
	ScatterDiv
	// ScatterUpdate replaces the variable's rows.
	ScatterUpdate
	// ScatterMin and ScatterMax store the elementwise minimum or maximum.
	ScatterMin
	ScatterMax
)

// String returns TensorFlow's name, such as scatter_add.
func (op ScatterOp) String() string {
	return enum.Name(op, "scatter_add", "scatter_sub", "scatter_mul", "scatter_div", "scatter_update",
		"scatter_min", "scatter_max")
}
