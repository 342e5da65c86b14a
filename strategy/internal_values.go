package strategy

import (
	"cmp"
	"context"
	"errors"

	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/tensors"

	"github.com/tpustrategy/tpustrategy/internal/engine"
	"github.com/tpustrategy/tpustrategy/logical"
)

// The internal methods of a strategy for values and for the arguments of eager calls.

// CheckOwned returns an error for a nil pointer and for an object of another strategy.
func (m internalStrategy) CheckOwned(op string, x any) error {
	return operandOf(x).checkOwnedBy(m.TPUStrategy, op)
}

// CheckLeaf returns a reason, and perhaps an error, if a value, a variable or a component cannot be
// a leaf of a nest.
func (m internalStrategy) CheckLeaf(x any) (reason string, err error) {
	switch x := x.(type) {
	case Value:
		if isNil(x) {
			break // the function reports it
		}
		if _, err := x.base().openBuffers(); errors.Is(err, ErrClosed) {
			return "closed", err
		}
	case *Variable:
		if x == nil {
			return "no variable: a nil pointer", nil
		}
		if _, ok := mapPartitions(m.runtime, x.strategy.runtime); x.strategy != m.TPUStrategy && !ok {
			return "a variable of another strategy", x.checkOwnedBy(m.TPUStrategy, "run")
		}
	case component:
		if operandOf(x).kind == noOperand {
			return "no component: a nil pointer, or a component of nothing", nil
		}
	}
	return "", nil
}

// NeedsResolve reports whether x is a variable, a component or another strategy's value. Resolve
// converts these to values.
func (m internalStrategy) NeedsResolve(x any) bool { return operandOf(x).needsResolve(m.TPUStrategy) }

// Resolve converts an argument of the call op to a host tensor or to a value on the devices.
// release closes a new value.
func (m internalStrategy) Resolve(ctx context.Context, op string, x any) (host *tensors.Tensor, value Value,
	release func() error, err error) {
	c, err := operandOf(x).resolve(ctx, m.TPUStrategy, op)
	return c.host, c.value, c.release, err
}

// ResolveMirrored converts an argument to a value that is the same on all replicas. release closes
// a new value.
func (m internalStrategy) ResolveMirrored(ctx context.Context, op string, x any) (v *Mirrored, release func() error,
	err error) {
	c, err := operandOf(x).resolveMirrored(ctx, m.TPUStrategy, op)
	if err != nil {
		return nil, nil, err
	}
	return c.value.(*Mirrored), c.release, nil
}

// NewBatch is like [TPUStrategy.PerReplica]. A step accepts the results of NewBatch only with equal
// numbers of rows.
func (m internalStrategy) NewBatch(ctx context.Context, values []any, a logical.Annotation) (*PerReplica, error) {
	v, err := m.PerReplica(ctx, values, a)
	if err == nil {
		v.batch = true
	}
	return v, err
}

// NewPerReplica creates a value from the replicas' tensors, whose shapes may differ. The tensors of
// replicas without a device in this process are nil.
func (m internalStrategy) NewPerReplica(ctx context.Context, values []*tensors.Tensor, types []shapes.Shape,
	a logical.Annotation) (*PerReplica, error) {
	return batchSplitter{TPUStrategy: m.TPUStrategy, annotation: a}.putShapes(ctx, values, types)
}

// NewAbstractValue returns a mirrored value without contents.
func (m internalStrategy) NewAbstractValue(shape shapes.Shape) (Value, error) {
	return batchSplitter{TPUStrategy: m.TPUStrategy}.newAbstractValue(shape, false)
}

// NewObjects returns an Objects that has only the values of this process's replicas.
func (m internalStrategy) NewObjects(values []any) *Objects {
	o := NewObjects(values...)
	o.local = m.LocalReplicas()
	return o
}

// ObjectAt is like [Objects.At], but returns an error for a replica of another process.
func (m internalStrategy) ObjectAt(o *Objects, replica int) (any, error) {
	return o.localObject(replica)
}

// CopyToHost copies a value to the host, even if its shards are in several processes.
func (m internalStrategy) CopyToHost(ctx context.Context, v *Mirrored) (*tensors.Tensor, error) {
	return v.copyToHost(ctx)
}

// Reduction returns a code for the reduction of a value or variable without axes, for
// [internalContext.Reduce] and for the name of a program.
func (m internalStrategy) Reduction(op ReduceOp, x any) (how byte, err error) {
	var base *deviceValue
	if v, ok := x.(*Variable); !ok {
		base = x.(Value).base()
	} else if base = v.asDeviceValue(); v.localWrites && op == Mean {
		return byte(reduceFirst), nil // the value of a mirrored variable is the value of replica 0
	}
	of, err := base.reduction(op)
	return byte(of), err
}

// valueAccess gives the other packages of this module access to internalValue, with
// [engine.Internal].
type (
	valueAccess     = engine.Access[internalValue]
	valueAccessible = engine.Accessible[internalValue]
)

// internalValue has the methods of a value that only packages of this module call.
type internalValue struct{ *deviceValue }

// KeepOnDevices releases the value on the partitions for which only is false.
func (m internalValue) KeepOnDevices(only []bool) error { return m.keepOnDevices(only) }

func (m internalValue) IsPerReplica() bool { return m.perReplica }

// ReplicaShapes returns the shapes of the replicas' tensors if they differ, otherwise nil.
func (m internalValue) ReplicaShapes() [][]int { return m.replicaShapes }

// ReplicaSizes returns a value that contains the shape of each replica's tensor, as an argument of
// a program.
func (m internalValue) ReplicaSizes(ctx context.Context) (*PerReplica, error) {
	return m.newSizesValue(ctx)
}

// SetReplicaShapes sets the replicas' shapes, or nil if they are equal, and whether the tensors are
// known to be equal.
func (m internalValue) SetReplicaShapes(shapes [][]int, equal bool) {
	m.replicaShapes, m.equal = shapes, equal
}

// Origin returns a string that identifies the value in all processes: the eager call and the result
// that created it.
func (m internalValue) Origin() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.origin
}

// SetOrigin sets the origin of a value that has none.
func (m internalValue) SetOrigin(origin string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.origin = cmp.Or(m.origin, origin)
}
