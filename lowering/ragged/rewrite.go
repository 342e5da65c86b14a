package ragged

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/gomlx/compute/dtypes"

	"github.com/tpustrategy/tpustrategy/lowering/ir"
)

// SizeSource specifies where a program reads the real size of a padded dimension: from element
// Index of an int32 vector, which is the parameter named Parameter, or from Value, an int32 scalar
// of the main function.
type SizeSource struct {
	Parameter string
	Index     int
	Value     *ir.Value
}

// rewriter rewrites a program so that it ignores padding.
type rewriter struct {
	*Plan
	main      *ir.Function
	realSizes []*ir.Value // the real sizes, int32 scalars of the main function
	// prelude contains the statements that are inserted at the start of main, and out the rewritten
	// statements of the current block. later contains the statements that depend on late sizes,
	// which main computes itself. dst is the list to which new ops are appended.
	prelude, out, later []*ir.Statement
	dst                 *[]*ir.Statement
	isLate              []bool
	inBody              bool // in a loop or branch: main's values are visible, but ops must stay inside
	cache               map[string]*ir.Value
}

// Apply rewrites the program so that it ignores padding. sources contains the source of each real
// size. positions[i] is the new index of statement i of main, and the last element is the new
// number of statements. If Apply returns an error, the program is unchanged.
func (p *Plan) Apply(sources []SizeSource) (positions []int, err error) {
	main := p.program.Main()
	r := &rewriter{Plan: p, main: main, cache: map[string]*ir.Value{}}
	r.dst = &r.out
	defer func() {
		if e := recover(); e != nil { // see reject
			positions = nil
			if refused, ok := e.(*Error); ok {
				err = refused
			} else {
				err = &Error{Dim: -1, Reason: fmt.Sprintf("it cannot be rewritten: %v", e),
					Hint: "mask the padding in the step (FunctionOptions.Padding: KeepPadding)"}
			}
		}
	}()
	r.isLate = make([]bool, len(sources))
	var late *ir.Value
	for i, source := range sources {
		if source.Value != nil {
			r.realSizes, r.isLate[i], late = append(r.realSizes, source.Value), true, source.Value
			continue
		}
		at := slices.Index(p.program.ParameterNames, source.Parameter)
		if at < 0 {
			return nil, &Error{Dim: -1, Reason: fmt.Sprintf("the program has no parameter %q with padded size %d",
				source.Parameter, i), Hint: "name a parameter of the step"}
		}
		r.realSizes = append(r.realSizes, r.hoist(false,
			func() *ir.Value { return r.addElement(main.Parameters[at].Value, source.Index) }))
	}
	definedBy, at := -1, 0 // the statement that defines the late sizes, and its index
	for i, s := range main.Body {
		positions = append(positions, len(r.out))
		r.rewriteStatement(s)
		if late != nil && slices.Contains(s.Results, late) {
			definedBy, at = i, len(r.out)
		}
	}
	positions = append(positions, len(r.out))
	if late != nil && definedBy < 0 {
		return nil, &Error{Dim: -1, Reason: "the program does not make a real size", Hint: "name a value of the step"}
	}
	if definedBy >= 0 {
		r.out = slices.Insert(r.out, at, r.later...)
	}
	main.Body = append(r.prelude, r.out...)
	for i := range positions {
		positions[i] += len(r.prelude)
		if definedBy >= 0 && i > definedBy {
			positions[i] += len(r.later)
		}
	}
	return positions, nil
}

// hoist adds the ops that build emits to the start of main. If late is true, the ops depend on
// sizes that main computes itself, and hoist adds them after the ops that compute these sizes.
func (r *rewriter) hoist(late bool, build func() *ir.Value) *ir.Value {
	before := r.dst
	defer func() { r.dst = before }()
	if r.dst = &r.prelude; late {
		r.dst = &r.later
	}
	return build()
}

// rewriteStatement appends the rewritten statement to the current block, after the ops that it
// requires.
func (r *rewriter) rewriteStatement(s *ir.Statement) {
	if s.Op == constantOp || !r.used[s] {
		r.out = append(r.out, s)
		return
	}
	rewritten := *s
	rewritten.Operands = slices.Clone(s.Operands)
	for i, f := range r.constants[s] {
		if f != nil {
			rewritten.Operands[i] = r.sizeConstant(f, s.Operands[i].Type)
		}
	}
	if r.hasPaddedDims(s) {
		r.applyRule(s, &rewritten)
	}
	r.rewriteBodies(s, &rewritten)
	r.out = append(r.out, &rewritten)
}

func (r *rewriter) hasPaddedDims(s *ir.Statement) bool {
	concerned := func(v *ir.Value) bool { return len(paddedDims(r.dims[v])) > 0 }
	return slices.ContainsFunc(s.Operands, concerned) || slices.ContainsFunc(s.Results, concerned) ||
		len(r.varyingAttributes[s]) > 0 && s.Op != "stablehlo.custom_call"
}

func (r *rewriter) rewriteBodies(s, rewritten *ir.Statement) {
	switch s.Op {
	case "stablehlo.while", "stablehlo.if", "stablehlo.case":
	default:
		for _, f := range s.Regions {
			for _, inner := range f.Body {
				if r.constants[inner] != nil {
					panic(&Error{Op: s.OpName(), Dim: -1,
						Reason: "the function that it combines elements by has a constant that changes with a padded size",
						Hint:   "use the constant outside"})
				}
			}
		}
		return
	}
	rewritten.Regions = make([]*ir.Region, len(s.Regions))
	for i, f := range s.Regions {
		body, out := r.inBody, r.out
		r.out, r.inBody = nil, true
		for _, inner := range f.Body {
			r.rewriteStatement(inner)
		}
		rewritten.Regions[i] = &ir.Region{Label: f.Label, Arguments: f.Arguments, Body: r.out}
		r.out, r.inBody = out, body
	}
}

// sizeConstant returns the value of f for the real sizes, broadcast to type t. It adds the ops that
// compute f only once per program.
func (r *rewriter) sizeConstant(f *sizeFunction, t ir.Type) *ir.Value {
	key := fmt.Sprint("number ", *f, t.DType)
	v, ok := r.cache[key]
	if !ok {
		late := false
		for i, p := range f.powers {
			late = late || p != 0 && r.isLate[i]
		}
		v = r.hoist(late, func() *ir.Value { return r.evaluate(f, t.DType) })
		r.cache[key] = v
	}
	if t.Rank() == 0 {
		return v
	}
	return r.addBroadcast(v, t.Dims)
}

// evaluate adds the ops that compute f. It multiplies all divisors before it divides, so that
// 1/(3n) is rounded only once.
func (r *rewriter) evaluate(f *sizeFunction, dtype dtypes.DType) *ir.Value {
	in := dtypes.Float32
	switch {
	case dtype.IsInt():
		in = dtypes.Int64
	case dtype == dtypes.Float64:
		in = dtypes.Float64
	}
	make := func(x float64) *ir.Value {
		if in == dtypes.Int64 {
			return r.addConstant(ir.Integer(int(x)), in)
		}
		return r.addFloat(x, in)
	}
	above, below := 1.0, 1.0
	switch {
	case f.factor == math.Trunc(f.factor):
		above = f.factor
	case 1/f.factor == math.Round(1/f.factor):
		below = 1 / f.factor
	default:
		above = f.factor
	}
	top, bottom := make(above), (*ir.Value)(nil)
	if below != 1 {
		bottom = make(below)
	}
	for i, p := range f.powers {
		for range int(math.Ceil(math.Abs(p))) {
			size := r.addConvert(r.realSizes[i], in)
			if p == 0.5 || p == -0.5 {
				size = r.addOp("sqrt", size.Type, []*ir.Value{size})
			}
			switch {
			case p > 0:
				top = r.addBinary("multiply", top, size)
			case bottom == nil:
				bottom = size
			default:
				bottom = r.addBinary("multiply", bottom, size)
			}
		}
	}
	if bottom != nil {
		top = r.addBinary("divide", top, bottom)
	}
	if f.offset != 0 {
		top = r.addBinary("add", top, make(f.offset))
	}
	if in != dtype {
		top = r.addConvert(top, dtype)
	}
	return top
}

// realSize returns the size of a dimension without its padding, as an int32 scalar.
func (r *rewriter) realSize(d Dim) *ir.Value {
	key := fmt.Sprint("limit ", d)
	v, ok := r.cache[key]
	if !ok {
		v = r.realSizes[d.Size]
		if d.Factor > 1 {
			v = r.hoist(r.isLate[d.Size], func() *ir.Value { return r.addBinary("multiply", v, r.addInt(d.Factor)) })
		}
		r.cache[key] = v
	}
	return v
}

// realMask returns a Bool tensor of the given shape that is false in the padding of paddedDims.
func (r *rewriter) realMask(shape []int, dims []Dim, paddedDims []int) *ir.Value {
	var key strings.Builder
	fmt.Fprintf(&key, "inside %v %v", shape, paddedDims)
	for _, d := range paddedDims {
		fmt.Fprintf(&key, " %v", dims[d])
	}
	v, ok := r.cache[key.String()]
	if ok && !r.inBody {
		return v
	}
	limits, late := make([]*ir.Value, len(paddedDims)), false
	for i, d := range paddedDims {
		limits[i] = r.realSize(dims[d])
		late = late || r.isLate[dims[d].Size]
	}
	build := func() *ir.Value {
		var all *ir.Value
		for i, d := range paddedDims {
			index := r.addIota(0, shape[d])
			below := r.addCompare("LT", index, r.addBroadcast(limits[i], shape[d:d+1]))
			below = r.addBroadcast(below, shape, d)
			if all == nil {
				all = below
			} else {
				all = r.addBinary("and", all, below)
			}
		}
		return all
	}
	if r.inBody { // cached per block: values of another body may be undefined here
		return build()
	}
	v = r.hoist(late, build)
	r.cache[key.String()] = v
	return v
}

// maskPadding returns x with the padding of paddedDims replaced by the scalar that fill returns.
func (r *rewriter) maskPadding(x *ir.Value, dims []Dim, paddedDims []int, fill func() *ir.Value) *ir.Value {
	if len(paddedDims) == 0 {
		return x
	}
	inside := r.realMask(x.Type.Dims, dims, paddedDims)
	return r.addSelect(inside, x, r.addBroadcast(fill(), x.Type.Dims))
}
