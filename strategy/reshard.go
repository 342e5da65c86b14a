package strategy

import (
	"context"
	"fmt"

	"github.com/tpustrategy/tpustrategy/internal/engine/fault"
	"github.com/tpustrategy/tpustrategy/internal/mesh"
	"github.com/tpustrategy/tpustrategy/logical"
)

// A value has a layout from where it was made. A step that asks for another one by
// [FunctionOptions].Arguments gets it: the value is laid out anew before the step, by a program of
// its own that moves parts between the logical devices of a replica.

// laidOut says whether a value is on the logical devices as a asks. A value that a does not place
// is, and so is one that a wants whole and each device holds.
func (v *deviceValue) laidOut(a logical.Annotation) bool {
	if v.strategy.logicalDevices == 1 || a.Kind() == logical.None {
		return true
	}
	return v.annotation.Alike(a, v.strategy.axes)
}

// as returns a value laid out as a asks: the value where it is, otherwise a copy, which the caller
// closes. An annotation that does not fit the value's shape is a [*logical.Error]. A stacked value
// stays as it is: its loop lays out each step's part.
func as(ctx context.Context, v Value, a logical.Annotation) (out Value, err error) {
	base := v.base()
	s := base.strategy
	if err := a.ValidateOn(s.axes, "", base.shape); err != nil {
		return nil, err
	}
	if base.steps > 0 || base.laidOut(a) {
		return v, nil
	}
	if base.outline {
		out, err = s.newValue(base.perReplica, base.dtype, base.shape, a, nil)
	} else {
		out, err = copyOf(ctx, v, !base.perReplica, a)
	}
	if err != nil {
		return nil, fault.Of(fmt.Sprintf("laying out %s as %s", base, a), err, "")
	}
	out.base().ragged = base.ragged
	return out, nil
}

// unusedAnnotation refuses annotations of arguments that are not given.
func (f *Function) unusedAnnotation(args int) error {
	for i := args; i < len(f.opts.Arguments); i++ {
		if a := f.opts.Arguments[i]; a.Kind() != logical.None {
			return &ArgumentError{Function: f.opts.Name, Argument: i, Reason: fmt.Sprintf("annotated %s, but the step has %d arguments", a, args),
				Hint: "annotate the arguments that it has, in their order"}
		}
	}
	return nil
}

// keep gives up the devices but some. What reads the value finds it there; a step that takes it
// brings it to all for the time of the run.
func (v *deviceValue) keep(only []bool) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	var given mesh.Buffers
	for d, b := range v.buffers {
		if !only[d] && b != nil {
			given, v.buffers[d] = append(given, b), nil
		}
	}
	v.only = only
	return given.Close()
}

// onAll copies a value that is on some devices to all.
func (v *deviceValue) onAll(ctx context.Context) (*Mirrored, error) {
	t, err := v.Local(ctx, 0)
	if err != nil {
		return nil, err
	}
	return v.strategy.Mirror(ctx, t, v.annotation)
}
