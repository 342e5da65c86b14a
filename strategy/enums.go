package strategy

import (
	"strings"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/internal/engine/fault"
	"github.com/tpustrategy/tpustrategy/internal/enum"
)

// VariableSynchronization says when the components of a variable are combined: TensorFlow's
// tf.VariableSynchronization.
type VariableSynchronization int

const (
	// SyncAuto is TensorFlow's AUTO; it means OnWrite.
	SyncAuto VariableSynchronization = iota
	// SyncNone is TensorFlow's NONE. Strategies refuse it, as in TensorFlow.
	SyncNone
	// OnWrite is TensorFlow's ON_WRITE. The variable is mirrored: a write reaches all replicas.
	OnWrite
	// OnRead is TensorFlow's ON_READ, the synchronization of tf.keras.metrics. Each replica has a
	// component, which it writes without communication; a read across replicas combines the
	// components.
	OnRead
)

// String returns TensorFlow's name.
func (s VariableSynchronization) String() string {
	return enum.Name(s, "AUTO", "NONE", "ON_WRITE", "ON_READ")
}

// VariableAggregation says how the replicas' values of a variable are combined, on a write of an
// OnWrite variable and on a read of an OnRead variable: TensorFlow's tf.VariableAggregation.
type VariableAggregation int

const (
	// AggregateNone, TensorFlow's NONE, combines nothing: a replica's write is refused unless
	// [VariableOptions.LocalWrites] allows it.
	AggregateNone VariableAggregation = iota
	// AggregateSum, TensorFlow's SUM, adds the replicas' values.
	AggregateSum
	// AggregateMean, TensorFlow's MEAN, averages the replicas' values.
	AggregateMean
	// AggregateFirst, TensorFlow's ONLY_FIRST_REPLICA, takes the value of replica 0.
	AggregateFirst
)

// String returns TensorFlow's name.
func (a VariableAggregation) String() string {
	return enum.Name(a, "NONE", "SUM", "MEAN", "ONLY_FIRST_REPLICA")
}

// ReduceOp returns the reduction that the aggregation stands for. NONE and ONLY_FIRST_REPLICA stand
// for none: the error is of kind ValueError.
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

// ParseReduceOp returns the reduction of a name, "sum" or "mean" in upper or lower case.
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

// Padding says what a function does with values whose replicas differ in shape, such as the last
// batch of a dataset. A program has one shape: the replicas' tensors are padded with zeros, at the
// end of each dimension, to the greatest size. Batches without padding have one program, whatever
// Padding says.
type Padding int

const (
	// NoPadding refuses such values with an [*ArgumentError].
	NoPadding Padding = iota
	// MaskPadding computes what the step would compute without padding: reductions and gradients
	// leave the padding out, means divide by the real sizes, results are cut to the real sizes. An
	// op that cannot leave the padding out, such as a reverse along the padded dimension, is a
	// [*TraceError] that wraps a [*ragged.Error]. TensorFlow's RunOptions call this the dynamic batch
	// size. A program is compiled for each greatest shape; the step function is called three times
	// for the first, and two times more for each further size that differs.
	MaskPadding
	// KeepPadding is for a step that masks the padding itself: the step receives the zeros, asks
	// [ReplicaContext.RealSize] for the real sizes, and its results keep what it makes of the
	// padding.
	KeepPadding
)

// String returns the constant's name, such as "MaskPadding".
func (p Padding) String() string { return enum.Name(p, "NoPadding", "MaskPadding", "KeepPadding") }

// Semantics chooses between TensorFlow's strategies where they differ.
type Semantics int

const (
	// OwnSemantics behaves as TensorFlow's TPUStrategy without two limits of its ops: the mean of
	// integers is a float64, and int64 values can be summed in a step.
	OwnSemantics Semantics = iota
	// TensorFlowTPU behaves as TensorFlow's TPUStrategy, with these limits.
	TensorFlowTPU
	// TensorFlowMirrored behaves as TensorFlow's MirroredStrategy.
	TensorFlowMirrored
)

// String returns the name of the semantics.
func (s Semantics) String() string { return enum.Name(s, "default", "TPUStrategy", "MirroredStrategy") }

// ReduceOp says how the replicas' values are combined: TensorFlow's tf.distribute.ReduceOp.
type ReduceOp int

const (
	// Sum, TensorFlow's SUM, adds the replicas' values.
	Sum ReduceOp = iota
	// Mean, TensorFlow's MEAN, divides the sum of the replicas' values by their number.
	Mean
)

// String returns TensorFlow's name, SUM or MEAN.
func (op ReduceOp) String() string { return enum.Name(op, "SUM", "MEAN") }

// ScatterOp says how [ReplicaContext.Scatter] combines rows with those of a variable.
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
	// ScatterMin and ScatterMax take the lesser or the greater value, element by element.
	ScatterMin
	ScatterMax
)

// String returns TensorFlow's name, such as scatter_add.
func (op ScatterOp) String() string {
	return enum.Name(op, "scatter_add", "scatter_sub", "scatter_mul", "scatter_div", "scatter_update", "scatter_min", "scatter_max")
}
