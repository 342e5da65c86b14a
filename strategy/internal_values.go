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

// CheckOwned returns an error if x is a nil pointer or belongs to another strategy.
func (m internalStrategy) CheckOwned(op string, x any) error {
	return operandOf(x).checkOwnedBy(m.TPUStrategy, op)
}

// CheckLeaf checks whether a value, a variable or a component can be passed to a step in a nested
// argument. If not, it returns the reason, and an error if there is an underlying cause.
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

// NeedsResolve reports whether x must be converted with Resolve before a program can use it. This
// is true for a variable, a component, and a value of another strategy.
func (m internalStrategy) NeedsResolve(x any) bool { return operandOf(x).needsResolve(m.TPUStrategy) }

// Resolve converts an argument of the call op to a host tensor or to a value on the devices. If the
// value is new, release closes it.
func (m internalStrategy) Resolve(ctx context.Context, op string, x any) (host *tensors.Tensor, value Value,
	release func() error, err error) {
	c, err := operandOf(x).resolve(ctx, m.TPUStrategy, op)
	return c.host, c.value, c.release, err
}

// ResolveMirrored converts an argument to a value that is the same on all replicas. If the value is
// new, release closes it.
func (m internalStrategy) ResolveMirrored(ctx context.Context, op string, x any) (v *Mirrored, release func() error,
	err error) {
	c, err := operandOf(x).resolveMirrored(ctx, m.TPUStrategy, op)
	if err != nil {
		return nil, nil, err
	}
	return c.value.(*Mirrored), c.release, nil
}

// NewBatch creates a value like [TPUStrategy.PerReplica]. A step that receives several results of
// NewBatch requires them to have the same number of rows.
func (m internalStrategy) NewBatch(ctx context.Context, values []any, a logical.Annotation) (*PerReplica, error) {
	v, err := m.PerReplica(ctx, values, a)
	if err == nil {
		v.batch = true
	}
	return v, err
}

// NewPerReplica creates a value from one tensor for each replica. The shapes may differ. The tensor
// is nil for a replica without a device in this process.
func (m internalStrategy) NewPerReplica(ctx context.Context, values []*tensors.Tensor, types []shapes.Shape,
	a logical.Annotation) (*PerReplica, error) {
	return batchSplitter{TPUStrategy: m.TPUStrategy, annotation: a}.putShapes(ctx, values, types)
}

// NewAbstractValue returns a mirrored value without contents.
func (m internalStrategy) NewAbstractValue(shape shapes.Shape) (Value, error) {
	return batchSplitter{TPUStrategy: m.TPUStrategy}.newAbstractValue(shape, false)
}

// NewObjects returns an Objects with values for the replicas of this process only.
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

// Reduction returns a code that identifies the method to reduce a value or variable without axes.
// Pass the code to [internalContext.Reduce], and include it in the program's name.
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

// valueAccess and valueAccessible let other packages of this module call the methods of
// internalValue, with [engine.Internal].
type (
	valueAccess     = engine.Access[internalValue]
	valueAccessible = engine.Accessible[internalValue]
)

// internalValue has methods of a value that are not part of the public API. Only packages of this
// module call them.
type internalValue struct{ *deviceValue }

// KeepOnDevices releases the buffers of each partition p for which only[p] is false.
func (m internalValue) KeepOnDevices(only []bool) error { return m.keepOnDevices(only) }

func (m internalValue) IsPerReplica() bool { return m.perReplica }

// ReplicaShapes returns the shapes of the replicas' tensors if they differ, otherwise nil.
func (m internalValue) ReplicaShapes() [][]int { return m.replicaShapes }

// ReplicaSizes returns the shapes of the replicas' tensors as a value, for use as an argument of a
// program.
func (m internalValue) ReplicaSizes(ctx context.Context) (*PerReplica, error) {
	return m.newSizesValue(ctx)
}

// SetReplicaShapes sets the shape of each replica's tensor, or nil if the shapes are equal. It also
// records whether the tensors are known to be equal.
func (m internalValue) SetReplicaShapes(shapes [][]int, equal bool) {
	m.replicaShapes, m.equal = shapes, equal
}

// Origin returns a string that identifies the value in all processes. The string consists of the
// eager call that created the value and the position of the value in the call's result.
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
