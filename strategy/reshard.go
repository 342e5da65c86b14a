package strategy

import (
	"context"
	"fmt"

	"github.com/tpustrategy/tpustrategy/internal/engine"
	"github.com/tpustrategy/tpustrategy/internal/engine/fault"
	"github.com/tpustrategy/tpustrategy/logical"
)

// A step may request a layout of its arguments with [FunctionOptions].Arguments. A value with
// another layout is resharded before the step, by a separate program that moves shards between the
// logical devices of a replica.

// hasLayout reports whether a value has the layout a. It returns true if a is zero.
func (v *deviceValue) hasLayout(a logical.Annotation) bool {
	if v.strategy.logicalDevices == 1 || a.Kind() == logical.KindNone {
		return true
	}
	return v.annotation.SamePlacement(a, v.strategy.axes)
}

// reshard returns v if v has the layout a, and otherwise a copy with that layout, which the caller
// must close. If the annotation does not fit the value's shape, it returns a [*logical.Error]. It
// returns a [StackedBatches] unchanged, because the loop reshards the batch of each step.
func reshard(ctx context.Context, v Value, a logical.Annotation) (out Value, err error) {
	base := v.base()
	s := base.strategy
	if err := a.ValidateOn(s.axes, "", base.shape); err != nil {
		return nil, err
	}
	if base.steps > 0 || base.hasLayout(a) {
		return v, nil
	}
	if base.abstract {
		out, err = s.newValue(base.perReplica, base.dtype, base.shape, a, nil)
	} else {
		out, err = copyValue(ctx, v, !base.perReplica, a)
	}
	if err != nil {
		return nil, fault.Wrap(fmt.Sprintf("laying out %s as %s", base, a), err, "")
	}
	out.base().replicaShapes = base.replicaShapes
	return out, nil
}

// checkAnnotations returns an error if an annotation belongs to an argument that the call does not
// have.
func (f *Function) checkAnnotations(args int) error {
	for i := args; i < len(f.opts.Arguments); i++ {
		if a := f.opts.Arguments[i]; a.Kind() != logical.KindNone {
			return &ArgumentError{Function: f.opts.Name, Argument: i,
				Reason: fmt.Sprintf("annotated %s, but the step has %d arguments", a, args),
				Hint:   "annotate the arguments that it has, in their order"}
		}
	}
	return nil
}

// keepOnDevices releases the buffers of each partition p for which only[p] is false. A step that
// reads the value later copies it to all devices.
func (v *deviceValue) keepOnDevices(only []bool) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	var given engine.Buffers
	for d, b := range v.buffers {
		if !only[d] && b != nil {
			given, v.buffers[d] = append(given, b), nil
		}
	}
	v.only = only
	return given.Close()
}

// copyToAllDevices copies a value from some of the devices to all devices, through the host.
func (v *deviceValue) copyToAllDevices(ctx context.Context) (*Mirrored, error) {
	t, err := v.Local(ctx, 0)
	if err != nil {
		return nil, err
	}
	return v.strategy.Mirror(ctx, t, v.annotation)
}
