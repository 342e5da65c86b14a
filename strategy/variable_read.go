package strategy

import (
	"cmp"
	"context"
	"fmt"

	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/core/tensors"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/internal/engine/fault"
	"github.com/tpustrategy/tpustrategy/internal/engine/mode"
	"github.com/tpustrategy/tpustrategy/internal/engine/number"
)

// Cross-replica reads of a variable.

// checkNotTracing returns an error if a variable is read while a step is traced.
func (v *Variable) checkNotTracing(ctx context.Context, doing string) error {
	return RefuseTracing(ctx, fmt.Sprintf("%s %q", doing, v.path),
		"use MergeContext.Read, ReplicaContext.Read or UpdateContext.Read")
}

// checkCrossReplica returns an error if ctx belongs to replica code or to the scope of another
// strategy. It accepts the ctx of an update function.
func (v *Variable) checkCrossReplica(ctx context.Context, op string) error {
	if m, ok := mode.FromContext(ctx); ok && m.Strategy == v.strategy && m.Update >= 0 {
		return nil
	}
	if err := v.strategy.requireOwn(ctx, op, v.subject()); err != nil {
		return err
	}
	return v.strategy.requireCross(ctx, op)
}

// Read returns the variable's cross-replica value on the devices: the value of an [OnWrite]
// variable, or the components of an [OnRead] variable, combined by its aggregation. AggregateNone
// is an [*Error] of kind ValueError. The caller must close the value.
//
// With the context of an update, [eager.UpdateContext.Context], Read returns the component that is
// updated. With several processes the functions of all components must then call Read.
func (v *Variable) Read(ctx context.Context) (*Mirrored, error) {
	if err := v.checkNotTracing(ctx, "read"); err != nil {
		return nil, err
	}
	c := v.updater(ctx)
	if c != nil && v.strategy.runtime.IsMultiProcess() {
		m, err := c.Synchronize("read "+v.path, v, func(ctx context.Context, r int) (any, error) {
			if !v.perReplica() {
				return v.readCombined(ctx)
			}
			return operand{variable: v, replica: r}.copyComponent(ctx, v.strategy)
		})
		if err != nil {
			return nil, err
		}
		return m.(*Mirrored), nil
	}
	if c != nil && v.perReplica() {
		return operand{variable: v, replica: c.Number()}.copyComponent(ctx, v.strategy)
	}
	return v.readCombined(ctx)
}

// readCombined implements Read outside of update functions.
func (v *Variable) readCombined(ctx context.Context) (*Mirrored, error) {
	op := fmt.Sprintf("read %q", v.path)
	if err := v.checkCrossReplica(ctx, op); err != nil {
		return nil, err
	}
	if v.synchronization == OnRead && v.aggregation == AggregateNone {
		_, err := v.aggregation.ReduceOp()
		return nil, err
	}
	if v.synchronization == OnRead && v.aggregation != AggregateFirst && v.strategy.replicas > 1 {
		if err := number.CheckSummable(op, v.dtype); err != nil {
			return nil, err
		}
	}
	return builtinCall{
		name: "read", variables: []*Variable{v}, mirrored: true, results: oneAnnotation(v.annotation),
		step: func(rc *ReplicaContext, _ []*graph.Node) []*graph.Node {
			x := rc.Read(v)
			switch {
			case rc.strategy.replicas == 1:
			case v.synchronization == OnRead && v.aggregation != AggregateFirst:
				reduction, _ := v.aggregation.ReduceOp()
				return []*graph.Node{reduceEager(reduction, x, rc.strategy.replicas)}
			case v.perReplica():
				return []*graph.Node{rc.firstReplica(x)}
			}
			return []*graph.Node{x}
		},
	}.runMirrored(ctx, v.strategy)
}

// Value copies the result of [Variable.Read] to the host. With several processes, all must call
// Value at the same point.
func (v *Variable) Value(ctx context.Context) (*tensors.Tensor, error) {
	if err := v.checkNotTracing(ctx, "value of"); err != nil {
		return nil, err
	}
	c := v.updater(ctx)
	if c != nil && v.strategy.runtime.IsMultiProcess() {
		t, err := c.Synchronize("value of "+v.path, v, func(ctx context.Context, r int) (any, error) {
			if !v.perReplica() {
				return v.readCombinedToHost(ctx)
			}
			return v.readComponent(ctx, r)
		})
		if err != nil {
			return nil, err
		}
		return t.(*tensors.Tensor), nil
	}
	if c != nil && v.perReplica() {
		return v.readComponent(ctx, c.Number())
	}
	return v.readCombinedToHost(ctx)
}

// readComponent copies a replica's component to the host, even if it is on a device of another
// process.
func (v *Variable) readComponent(ctx context.Context, replica int) (*tensors.Tensor, error) {
	if v.strategy.isReadableEverywhere(true, v.annotation) {
		return v.Local(ctx, replica)
	}
	m, err := operand{variable: v, replica: replica}.copyComponent(ctx, v.strategy)
	if err != nil {
		return nil, err
	}
	defer m.Close()
	return m.copyToHost(ctx)
}

// readCombinedToHost implements Value outside of update functions.
func (v *Variable) readCombinedToHost(ctx context.Context) (*tensors.Tensor, error) {
	everywhere := v.strategy.isReadableEverywhere(v.perReplica() || v.replicaShard.IsSharded(), v.annotation)
	if v.synchronization == OnWrite && everywhere {
		if err := v.checkCrossReplica(ctx, fmt.Sprintf("read %q", v.path)); err != nil {
			return nil, err
		}
		return v.Local(ctx, 0)
	}
	m, err := v.readCombined(ctx)
	if err != nil {
		return nil, err
	}
	defer m.Close()
	return m.copyToHost(ctx)
}

// copyComponents copies the components of the variable to a new value on the same devices.
func (v *Variable) copyComponents(ctx context.Context) (Value, error) {
	results, err := builtinCall{
		name: "snapshot", variables: []*Variable{v}, mirrored: !v.perReplica(), results: oneAnnotation(v.annotation),
		step: func(rc *ReplicaContext, _ []*graph.Node) []*graph.Node { return []*graph.Node{rc.Read(v)} },
	}.run(ctx, v.strategy)
	if err != nil {
		return nil, err
	}
	return results[0], nil
}

// SaveValue returns the variable's cross-replica value for a checkpoint, like [Variable.Value].
func (v *Variable) SaveValue(ctx context.Context) (*tensors.Tensor, error) {
	if err := v.checkNotTracing(ctx, "save"); err != nil {
		return nil, err
	}
	return v.readCombinedToHost(ctx)
}

// Local waits for running steps and copies a replica's component to the host.
func (v *Variable) Local(ctx context.Context, replica int) (*tensors.Tensor, error) {
	if err := RefuseTracing(ctx, fmt.Sprintf("read %q", v.path), fault.InsteadOfReading); err != nil {
		return nil, err
	}
	s := v.strategy
	if replica < 0 || replica >= s.replicas {
		return nil, fault.New(errkind.ValueError, v.subject(), "count from 0", "replica %d of %d", replica, s.replicas)
	}
	if err := initVariables(ctx, v); err != nil {
		return nil, err
	}
	// A step that is launched during the read would donate the buffers.
	s.runtime.Launch.Lock()
	defer s.runtime.Launch.Unlock()
	if err := v.checkOpen(); err != nil {
		return nil, err
	}
	value, err := v.asDeviceValue().download(ctx, v.buffers, replica)
	return value, v.wrapError(err)
}

// LocalShard copies the buffer of one logical device of a replica to the host, without padding: a
// shard, or the complete variable if it is not sharded.
func (v *Variable) LocalShard(ctx context.Context, replica, logicalDevice int) (*tensors.Tensor, error) {
	if err := RefuseTracing(ctx, fmt.Sprintf("read %q", v.path), fault.InsteadOfReading); err != nil {
		return nil, err
	}
	s := v.strategy
	d := replica*s.logicalDevices + logicalDevice
	if replica < 0 || replica >= s.replicas || logicalDevice < 0 || logicalDevice >= s.logicalDevices {
		return nil, fault.New(errkind.ValueError, v.subject(), "count from 0",
			"replica %d of %d, logical device %d of %d",
			replica, s.replicas, logicalDevice, s.logicalDevices)
	}
	l, err := v.layout()
	if err != nil {
		return nil, err
	}
	if err := initVariables(ctx, v); err != nil {
		return nil, err
	}
	s.runtime.Launch.Lock()
	defer s.runtime.Launch.Unlock()
	if err := v.checkOpen(); err != nil {
		return nil, err
	}
	if v.buffers[d] == nil {
		return nil, s.newRemoteError(d, readThere)
	}
	_, sizes := l.ShardBounds(d)
	part := tensors.FromShape(shapes.Make(v.dtype, sizes...))
	var failed error
	err = part.MutableBytes(func(data []byte) { failed = s.runtime.GetShard(ctx, l, v.buffers, d, data) })
	if err = cmp.Or(failed, err); err != nil {
		return nil, v.wrapError(err)
	}
	return part, nil
}

// Ready waits until the steps in progress have computed the variable.
func (v *Variable) Ready(ctx context.Context) error {
	if Tracing(ctx) { // checked first, because the text allocates
		return RefuseTracing(ctx, fmt.Sprintf("wait for %q", v.path), fault.InsteadOfWaiting)
	}
	if err := initVariables(ctx, v); err != nil {
		return err
	}
	v.strategy.runtime.Launch.Lock()
	defer v.strategy.runtime.Launch.Unlock()
	return v.wrapError(waitReady(ctx, v.buffers))
}
