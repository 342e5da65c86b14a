package strategy

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/gomlx/compute/shapes"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/internal/engine/fault"
)

// prepareArguments copies the arguments to the devices, in the layouts that the step expects. The
// result temporary has the copies that prepareArguments creates. The caller must close it.
func (f *Function) prepareArguments(ctx context.Context, args []any, goal purpose) (values []Value,
	temporary temporaryValues, err error) {
	s := f.strategy
	if err := f.checkOpen(); err != nil {
		return nil, nil, err
	}
	if err := s.requireEager(ctx, f.opts.Name, fault.InsteadOfRunning); err != nil {
		return nil, nil, err
	}
	if goal == purposeRun {
		if err := s.checkRunnable("running", f.opts.Name); err != nil {
			return nil, nil, err
		}
	}
	if p := f.opts.Padding; p < NoPadding || p > KeepPadding {
		return nil, nil, fault.New(errkind.ValueError, f.opts.Name, "use NoPadding, MaskPadding or KeepPadding",
			"FunctionOptions.Padding is %s", p)
	}
	if err := f.checkAnnotations(len(args)); err != nil {
		return nil, nil, err
	}
	if err := f.checkRows(args); err != nil {
		return nil, nil, err
	}
	fail := func(i int, reason, hint string, err error) ([]Value, temporaryValues, error) {
		_ = temporary.close()
		return nil, nil, &ArgumentError{Function: f.opts.Name, Argument: i, Reason: reason, Hint: hint, Err: err}
	}
	for i, arg := range args {
		if err := ctx.Err(); err != nil {
			return fail(i, "not copied", "", err)
		}
		placed, copied, err := f.placeArgument(ctx, i, arg)
		if err != nil {
			_ = temporary.close()
			return nil, nil, err
		}
		if v, ok := placed.(Value); ok {
			temporary, values = append(temporary, copied...), append(values, v)
			if v.base().abstract && goal == purposeRun {
				return fail(i, "made of shapes, which have no contents", argumentHint(shapes.Shape{}), nil)
			}
			if v.base().replicaShapes != nil && !f.acceptsRagged() {
				return fail(i, fmt.Sprintf("replicas have different shapes %v", v.base().replicaShapes),
					"a compiled step has one shape: set FunctionOptions.Padding to MaskPadding, or Reduce the value with an axis", nil)
			}
			continue
		}
		var v Value
		share := batchSplitter{s, f.opts.LocalBatch, f.argumentAnnotation(i)}
		if shape, ok := arg.(shapes.Shape); ok {
			if goal == purposeRun {
				return fail(i, "a shape, which has no contents", argumentHint(arg), nil)
			}
			if shape.Ok() && f.acceptsUneven() && f.isUneven(shape) {
				v, err = share.newUnevenAbstractValue(shape)
			} else {
				v, err = share.newAbstractValue(shape, f.opts.SplitBatch || f.opts.LocalBatch)
			}
		} else if batch, ok := f.unevenBatch(arg); ok {
			v, err = asValue(share.splitUneven(ctx, batch))
		} else if f.opts.SplitBatch || f.opts.LocalBatch {
			v, err = asValue(share.splitBatch(ctx, arg))
		} else {
			v, err = asValue(s.Mirror(ctx, arg, f.argumentAnnotation(i)))
		}
		if err != nil {
			return fail(i, fmt.Sprintf("a host value of type %T", arg), argumentHint(arg), err)
		}
		values, temporary = append(values, v), append(temporary, v)
	}
	// The actual sizes of ragged arguments follow the arguments.
	for i := range args {
		if base := values[i].base(); base.replicaShapes != nil {
			sizes, err := base.newSizesValue(ctx)
			if err != nil {
				return fail(i, "its sizes are not copied", "", err)
			}
			values, temporary = append(values, sizes), append(temporary, sizes)
		}
	}
	return values, temporary, nil
}

// hasArgumentLayout reports whether the step can use v as argument i without a copy.
func (f *Function) hasArgumentLayout(i int, v Value) bool {
	base := v.base()
	return base.strategy == f.strategy && base.only == nil && base.hasLayout(f.argumentAnnotation(i))
}

// placeArgument converts argument i to a value that the step can use. It converts a variable or a
// component to a value. It copies a value that is not on all devices, or whose layout differs from
// the annotation of the argument. It returns a host value unchanged. The result temporary has the
// copies that placeArgument creates. The caller must close it.
func (f *Function) placeArgument(ctx context.Context, i int, arg any) (placed any, temporary temporaryValues,
	err error) {
	s := f.strategy
	fail := func(reason, hint string, err error) (any, temporaryValues, error) {
		_ = temporary.close()
		return nil, nil, &ArgumentError{Function: f.opts.Name, Argument: i, Reason: reason, Hint: hint, Err: err}
	}
	v, onDevices := arg.(Value)
	if o := operandOf(arg); o.needsResolve(s) {
		if v, err = o.resolveArgument(ctx, s, f.opts.Name); err != nil {
			return fail(fmt.Sprintf("a %T", arg), "", err)
		}
		temporary, onDevices = append(temporary, v), true
	}
	if !onDevices {
		return arg, nil, nil
	}
	if isNil(v) {
		return fail("no value", "give a value or a host tensor", nil)
	}
	if err := checkOwnedBy(s, v); err != nil {
		return fail("a value of another strategy", "copy it through the host", err)
	}
	if v.base().only != nil {
		if v, err = asValue(v.base().copyToAllDevices(ctx)); err != nil {
			return fail("on some devices, and not copied to the others", "", err)
		}
		temporary = append(temporary, v)
	}
	laid, err := reshard(ctx, v, f.argumentAnnotation(i))
	if err != nil {
		return fail("not laid out as "+f.argumentAnnotation(i).String(), "", err)
	}
	if laid != v {
		temporary = append(temporary, laid)
	}
	return laid, temporary, nil
}

// placeArguments calls placeArgument for each argument. It does not allocate if no argument needs a
// conversion.
func (f *Function) placeArguments(ctx context.Context, args []any) (placed []any, temporary temporaryValues,
	err error) {
	placed = args
	for i, arg := range args {
		if v, ok := arg.(Value); ok && !isNil(v) && f.hasArgumentLayout(i, v) {
			continue
		}
		x, copied, err := f.placeArgument(ctx, i, arg)
		if err != nil {
			_ = temporary.close()
			return nil, nil, err
		}
		if len(copied) == 0 {
			continue
		}
		if len(temporary) == 0 {
			placed = slices.Clone(args)
		}
		placed[i], temporary = x, append(temporary, copied...)
	}
	return placed, temporary, nil
}

// argumentHint returns a suggestion for the error about an argument that is not a tensor.
func argumentHint(arg any) string {
	switch operandOf(arg).kind {
	case noOperand:
		return "give a value or a host tensor"
	case shapeOperand:
		return "give a tensor; Compiled and Lowered take shapes"
	case objectsOperand:
		return "a step takes tensors: turn text into numbers with the dataset's Map, or run eager code with " +
			"eager.Extended.CallForEachReplica"
	case nestOperand:
		return "give its leaves one by one, or make the step by nest.New"
	}
	return ""
}

// signature returns a key for the compiled programs. Arguments with equal keys can use the same
// program.
func signature(values []Value) string {
	var b strings.Builder
	padded := newPaddedDims(values, 0)
	for i, v := range values {
		base := v.base()
		fmt.Fprintf(&b, "%s%v %s %t %d %t", base.dtype, base.shape, base.annotation, base.perReplica, base.steps,
			base.replicaShapes != nil)
		if base.replicaShapes != nil {
			fmt.Fprintf(&b, " %v", padded.sizeIndices[i])
		}
		b.WriteByte(';')
	}
	return b.String()
}
