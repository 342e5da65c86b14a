package strategy

import (
	"context"
	"fmt"
	"slices"

	"github.com/gomlx/gomlx/core/graph"

	"github.com/tpustrategy/tpustrategy/internal/mesh"
	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/strategy/internal/fault"
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
func as(ctx context.Context, v Value, a logical.Annotation) (out Value, copied bool, err error) {
	base := v.base()
	s := base.strategy
	if err := a.ValidateOn(s.axes, "", base.shape); err != nil {
		return nil, false, err
	}
	if base.steps > 0 || base.laidOut(a) {
		return v, false, nil
	}
	if base.outline {
		out, err = s.newValue(base.perReplica, base.dtype, base.shape, a, nil)
	} else {
		out, err = reshard(ctx, v, a)
	}
	if err != nil {
		return nil, false, err
	}
	out.base().ragged = base.ragged
	return out, true, nil
}

// reshard copies a value into another layout. Nothing goes through the host.
func reshard(ctx context.Context, v Value, a logical.Annotation) (Value, error) {
	base := v.base()
	if _, err := base.live(); err != nil {
		return nil, err
	}
	out, err := builtinCall{
		name: "lay_out", values: []Value{v}, mirrored: !base.perReplica, results: one(a),
		step: func(_ *ReplicaContext, in []*graph.Node) []*graph.Node { return in },
	}.run(ctx, base.strategy)
	if err != nil {
		return nil, fault.Of(fmt.Sprintf("laying out %s as %s", base, a), err, "")
	}
	return out[0], nil
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

// laidOut says whether the values of the batch are laid out as the function's arguments are.
func (f *Function) laidOut(batch []any) bool {
	for i, arg := range batch {
		if v, ok := arg.(Value); ok && !isNil(v) && !v.base().laidOut(f.argument(i)) {
			return false
		}
	}
	return true
}

// layOut returns the batch with its values as the function's arguments are laid out. The batch
// stays as it is. release closes the copies.
func (f *Function) layOut(ctx context.Context, batch []any) (laid []any, release func(), err error) {
	laid = batch
	var copies []Value
	release = func() {
		for _, v := range copies {
			_ = v.Close()
		}
	}
	for i, arg := range batch {
		v, ok := arg.(Value)
		if !ok || isNil(v) || ownedBy(f.strategy, v) != nil { // which is said later
			continue
		}
		moved, copied, err := as(ctx, v, f.argument(i))
		if err != nil {
			release()
			return nil, nil, f.notLaidOut(i, err)
		}
		if !copied {
			continue
		}
		if copies == nil {
			laid = slices.Clone(batch)
		}
		laid[i], copies = moved, append(copies, moved)
	}
	return laid, release, nil
}

func (f *Function) notLaidOut(argument int, err error) *ArgumentError {
	return &ArgumentError{Function: f.opts.Name, Argument: argument, Reason: "not laid out as " + f.argument(argument).String(), Err: err}
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

// spread brings values that are on some devices to all, for the time of a run. release closes the
// copies.
func spread(ctx context.Context, values []Value) (all []Value, release func(), err error) {
	if !slices.ContainsFunc(values, func(v Value) bool { return v.base().only != nil }) {
		return values, nothing, nil // without an allocation
	}
	var made []Value
	all = slices.Clone(values)
	release = func() {
		for _, v := range made {
			_ = v.Close()
		}
	}
	for i, v := range values {
		if v.base().only == nil {
			continue
		}
		t, err := v.Local(ctx, 0)
		if err == nil {
			var m *Mirrored
			if m, err = v.base().strategy.Mirror(ctx, t, v.Annotation()); err == nil {
				all[i], made = m, append(made, m)
			}
		}
		if err != nil {
			release()
			return nil, nil, err
		}
	}
	return all, release, nil
}

func nothing() {}
