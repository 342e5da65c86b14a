package lowering

import (
	"errors"
	"fmt"
	"slices"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/go-xla/stablehlo"
	xshapes "github.com/gomlx/go-xla/types/shapes"

	"github.com/tpustrategy/tpustrategy/lowering/ir"
)

// Value is the [compute.Value] of this package: an SSA value and the Function that contains it. It
// is immutable for callers.
type Value struct {
	fn    *Function
	value *stablehlo.Value
	shape shapes.Shape

	// origin is nil without Options.Origins. op is the number of preceding ops. parameter is the
	// number of a parameter of the entry function, counted from 1.
	origin          *ir.Origin
	producer        *producer // nil once the origin is a line of the user's code
	hasReaderOrigin bool      // the origin is the origin of an op that reads the value
	dependence      dependence
	op, parameter   int
}

// String returns the SSA name and the shape, such as "%3 (Float32)[2, 3]".
func (v *Value) String() string { return v.value.String() + " " + v.shape.String() }

// ShapeOf converts a shape of the StableHLO builder to a GoMLX shape. It copies the dimensions.
func ShapeOf(s xshapes.Shape) shapes.Shape {
	return shapes.Shape{DType: s.DType, Dimensions: slices.Clone(s.Dimensions)}
}

// StableHLOShape converts a GoMLX shape to a shape of the StableHLO builder, and copies the
// dimensions. It returns an error for tuples, unsupported dtypes, and dynamic or negative
// dimensions.
func StableHLOShape(s shapes.Shape) (xshapes.Shape, error) {
	switch {
	case !s.Ok():
		return xshapes.Shape{}, newFault("invalid shape", "it has no dtype", "make shapes with shapes.Make")
	case s.IsTuple():
		return xshapes.Shape{}, newFault(fmt.Sprintf("shape %s", s), "a tuple has no tensor type",
			"pass its elements one by one")
	case s.IsDynamic():
		return xshapes.Shape{}, newFault(fmt.Sprintf("shape %s", s), "it is dynamic, and XLA compiles for fixed shapes",
			"trace once per shape, or pad")
	}
	for axis, dim := range s.Dimensions {
		if dim < 0 {
			return xshapes.Shape{}, newFault(fmt.Sprintf("shape %s", s), fmt.Sprintf("it has negative dimension %d on axis %d",
				dim, axis), "use dimensions of at least 0")
		}
	}
	if !ir.IsSupported(s.DType) {
		return xshapes.Shape{}, newFault(fmt.Sprintf("dtype %s", s.DType), "it has no StableHLO type here",
			"convert to one that Capabilities lists")
	}
	return xshapes.Shape{DType: s.DType, Dimensions: slices.Clone(s.Dimensions)}, nil
}

func (f *Function) newValue(v *stablehlo.Value) *Value {
	return &Value{fn: f, value: v, shape: ShapeOf(v.Shape())}
}

// checkOwner returns an error unless v is a value of this computation.
func (f *Function) checkOwner(v compute.Value) (*Value, error) {
	w, ok := v.(*Value)
	switch {
	case v == nil || (ok && w == nil):
		return nil, errors.New("nil operand")
	case !ok:
		return nil, fmt.Errorf("operand is a %T of another backend", v)
	case w.fn.builder != f.builder:
		return nil, fmt.Errorf("operand %s comes from another computation, %q", w, w.fn.builder.name)
	}
	return w, nil
}

// resolveOperand returns w for use as an operand in f. w must belong to f or an enclosing function.
// A value of an enclosing function is referenced, so that the op is added to f.
func (f *Function) resolveOperand(w *Value) (*stablehlo.Value, error) {
	if w.fn == f {
		return w.value, nil
	}
	for p := f.parent; p != nil; p = p.parent {
		if p == w.fn {
			return f.fn.UseParentValue(w.value)
		}
	}
	return nil, fmt.Errorf("operand %s belongs to a function that does not enclose this one", w)
}

// addOps adds ops to f. It resolves the operands, calls emit, and wraps the results. Every error is
// an [*OpError]. emit panics with its errors, as the StableHLO builder does for some malformed
// arguments, and addOps recovers them.
func (f *Function) addOps(name string, operands []compute.Value,
	emit func(in []*stablehlo.Value) []*stablehlo.Value) (results []compute.Value, err error) {
	e := &OpError{Op: name, Function: f.name}
	defer func() {
		r := recover()
		if r == nil {
			return
		}
		results, err = nil, e
		var ok bool
		if e.Err, ok = r.(error); !ok {
			e.Err = fmt.Errorf("%v", r)
		}
		if inner, ok := errors.AsType[*OpError](e.Err); ok { // a part of a composite op failed
			err = inner
		}
	}()
	if e.Err = f.checkOpen(); e.Err != nil {
		return nil, e
	}
	in, from := make([]*stablehlo.Value, len(operands)), make([]*Value, len(operands))
	for i, operand := range operands {
		w, err := f.checkOwner(operand)
		if err == nil {
			e.Operands, from[i] = append(e.Operands, w.shape), w
			in[i], err = f.resolveOperand(w)
		}
		if err != nil {
			e.Err = fmt.Errorf("operand %d: %w", i, err)
			return nil, e
		}
	}
	done, first := f.builder.origins.begin(from), len(f.fn.Statements)
	if done != nil {
		defer func() { f.builder.origins.inOp = false }()
	}
	out := emit(in)
	results = make([]compute.Value, len(out))
	for i, v := range out {
		results[i] = f.newValue(v)
	}
	if done != nil {
		done(f.fn.Statements[first:], results)
	}
	f.builder.backend.observed.recordOp(name, from, results)
	return results, nil
}

// addOp is addOps for an op with one result.
func (f *Function) addOp(name string, operands []compute.Value,
	emit func(in []*stablehlo.Value) *stablehlo.Value) (compute.Value, error) {
	out, err := f.addOps(name, operands, func(in []*stablehlo.Value) []*stablehlo.Value {
		return []*stablehlo.Value{emit(in)}
	})
	if err != nil {
		return nil, err
	}
	return out[0], nil
}

func valueList(operands ...compute.Value) []compute.Value { return operands }
