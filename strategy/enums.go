package strategy

import (
	"fmt"
	"strings"

	"github.com/tpustrategy/tpustrategy/strategy/internal/fault"
)

// VariableSynchronization says when the components of a variable are brought
// together.
type VariableSynchronization int

const (
	// SyncAuto is OnWrite.
	SyncAuto VariableSynchronization = iota
	// SyncNone is refused by strategies, as in TensorFlow.
	SyncNone
	// OnWrite variables are mirrored: a write reaches all replicas.
	OnWrite
	// OnRead variables have a component for each replica, which it writes
	// without communication; a read across replicas combines them.
	OnRead
)

// String returns TensorFlow's name.
func (s VariableSynchronization) String() string {
	if s < SyncAuto || s > OnRead {
		return fmt.Sprintf("VariableSynchronization(%d)", int(s))
	}
	return [...]string{"AUTO", "NONE", "ON_WRITE", "ON_READ"}[s]
}

// VariableAggregation says how the replicas' values of a variable are combined:
// on a write of an OnWrite variable, on a read of an OnRead one.
type VariableAggregation int

const (
	// AggregateNone combines nothing: a replica's write is refused unless
	// [VariableOptions.LocalWrites] allows it.
	AggregateNone VariableAggregation = iota
	// AggregateSum adds the replicas' values.
	AggregateSum
	// AggregateMean averages them.
	AggregateMean
	// AggregateFirst takes replica 0's.
	AggregateFirst
)

// String returns TensorFlow's name.
func (a VariableAggregation) String() string {
	if a < AggregateNone || a > AggregateFirst {
		return fmt.Sprintf("VariableAggregation(%d)", int(a))
	}
	return [...]string{"NONE", "SUM", "MEAN", "ONLY_FIRST_REPLICA"}[a]
}

// ReduceOp returns the reduction that the aggregation stands for. NONE and
// ONLY_FIRST_REPLICA have none: a ValueError.
func (a VariableAggregation) ReduceOp() (ReduceOp, error) {
	switch a {
	case AggregateSum:
		return Sum, nil
	case AggregateMean:
		return Mean, nil
	}
	return 0, fault.New(ValueError, "aggregation", "create the variable with AggregateSum or AggregateMean",
		"%s is no reduction", a)
}

// ParseReduceOp returns the reduction of a name, "sum" or "mean" in any case.
func ParseReduceOp(name string) (ReduceOp, error) {
	switch strings.ToUpper(name) {
	case "SUM":
		return Sum, nil
	case "MEAN":
		return Mean, nil
	}
	return 0, fault.New(ValueError, "reduction", "use SUM or MEAN", "%q is none", name)
}

func (op ReduceOp) check(call string) error {
	if op != Sum && op != Mean {
		return fault.New(AssertionError, call, "use Sum or Mean", "unknown reduction %s", op)
	}
	return nil
}

// Semantics chooses between TensorFlow's strategies where they differ.
type Semantics int

const (
	// OwnSemantics is TPUStrategy's behaviour but for two limits of its ops: an
	// integer mean is a float64, and int64 values can be summed in a step.
	OwnSemantics Semantics = iota
	// TensorFlowTPU keeps those limits too.
	TensorFlowTPU
	// TensorFlowMirrored is MirroredStrategy's behaviour.
	TensorFlowMirrored
)

// String names the semantics.
func (s Semantics) String() string {
	if s < OwnSemantics || s > TensorFlowMirrored {
		return fmt.Sprintf("Semantics(%d)", int(s))
	}
	return [...]string{"default", "TPUStrategy", "MirroredStrategy"}[s]
}
