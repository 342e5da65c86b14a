package ragged

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/go-xla/stablehlo"
	"github.com/gomlx/go-xla/types"
	xshapes "github.com/gomlx/go-xla/types/shapes"
)

// Source says where a program finds a real size: an element of a parameter that is a vector
// of int32.
type Source struct {
	Parameter string
	Index     int
}

// rewriter writes the real sizes into a program.
type rewriter struct {
	*Plan
	main *stablehlo.Function
	real []*stablehlo.Value // the real sizes, int32 scalars of main
	// prelude is what main computes before all else, out what the function at hand has by now.
	prelude, out []*stablehlo.Statement
	inPrelude    bool
	host         *stablehlo.Function // the function at hand, where the builder writes
	named        map[string]*stablehlo.Value
	err          error
}

// Apply rewrites the program for real sizes, which sources says where to find, in the order of
// the sizes. The result is the new position of each of main's statements, and of the end.
func (p *Plan) Apply(sources []Source) (positions []int, err error) {
	main := p.program.Main
	r := &rewriter{Plan: p, main: main, host: main, named: map[string]*stablehlo.Value{}}
	old := main.Statements
	defer func(returned bool) {
		main.Returned = returned
		if e := recover(); e != nil { // the builder's: see do
			if err, _ = e.(error); err == nil {
				err = fmt.Errorf("ragged: %v", e)
			}
		}
		if err != nil {
			positions, main.Statements = nil, old
		}
	}(main.Returned)
	main.Returned = false
	for i, source := range sources {
		at := slices.Index(p.program.ParameterNames, source.Parameter)
		if at < 0 {
			return nil, fmt.Errorf("ragged: the program has no parameter %q with size %d", source.Parameter, i)
		}
		r.real = append(r.real, r.early(func() *stablehlo.Value {
			one := r.do(stablehlo.Slice(main.Inputs[at], []int{source.Index}, []int{source.Index + 1}, []int{1}))
			return r.do(stablehlo.Reshape(one, xshapes.Make(dtypes.Int32)))
		}))
	}
	for _, s := range old {
		positions = append(positions, len(r.out))
		r.statement(s)
		if r.err != nil {
			return nil, r.err
		}
	}
	positions = append(positions, len(r.out))
	main.Statements = append(r.prelude, r.out...)
	for i := range positions {
		positions[i] += len(r.prelude)
	}
	return positions, nil
}

// do keeps the first error of the builder.
func (r *rewriter) do(v *stablehlo.Value, err error) *stablehlo.Value {
	if err != nil && r.err == nil {
		r.err = fmt.Errorf("ragged: %w", err)
	}
	if r.err != nil {
		panic(r.err)
	}
	return v
}

// write adds what build makes to the function at hand.
func (r *rewriter) write(build func() *stablehlo.Value) *stablehlo.Value {
	host := r.host
	n, returned := len(host.Statements), host.Returned
	host.Returned = false
	defer func() { host.Returned = returned }()
	v := build()
	made := slices.Clone(host.Statements[n:])
	host.Statements = host.Statements[:n]
	if r.inPrelude {
		r.prelude = append(r.prelude, made...)
	} else {
		r.out = append(r.out, made...)
	}
	return v
}

// early is write into main's beginning.
func (r *rewriter) early(build func() *stablehlo.Value) *stablehlo.Value {
	host, in := r.host, r.inPrelude
	r.host, r.inPrelude = r.main, true
	defer func() { r.host, r.inPrelude = host, in }()
	return r.write(build)
}

// here makes a value of main usable in the function at hand.
func (r *rewriter) here(v *stablehlo.Value) *stablehlo.Value {
	if r.host == r.main || r.inPrelude {
		return v
	}
	return r.do(r.host.UseParentValue(v))
}

// statement writes a statement of the function at hand, and what it needs before.
func (r *rewriter) statement(s *stablehlo.Statement) {
	if opName(s) == "constant" || !r.used[s] {
		r.out = append(r.out, s)
		return
	}
	copied := *s
	copied.Inputs = slices.Clone(s.Inputs)
	for i, f := range r.constants[s] {
		if f != nil {
			copied.Inputs[i] = r.number(f, s.Inputs[i].Shape())
		}
	}
	if r.concerns(s) {
		if e := r.rule(s, &copied); e != nil {
			r.err = e
			return
		}
	}
	r.bodies(s, &copied)
	r.out = append(r.out, &copied)
}

// concerns reports whether a statement has to do with padded dimensions.
func (r *rewriter) concerns(s *stablehlo.Statement) bool {
	for _, v := range append(slices.Clone(s.Inputs), s.Outputs...) {
		if len(padded(r.dims[v.String()])) > 0 {
			return true
		}
	}
	return len(r.varying[s]) > 0 && opName(s) != "custom_call"
}

// bodies rewrites the bodies of loops and branches.
func (r *rewriter) bodies(s, copied *stablehlo.Statement) {
	switch opName(s) {
	case "while", "if", "case":
	default:
		for _, f := range s.FunctionParameters {
			for _, inner := range f.Statements {
				if r.constants[inner] != nil && r.err == nil {
					r.err = &Error{Op: opName(s), Dim: -1, Reason: "the function that it combines elements by has a constant that changes with a padded size",
						Hint: "use the constant outside"}
				}
			}
		}
		return
	}
	copied.FunctionParameters = make([]*stablehlo.Function, len(s.FunctionParameters))
	for i, f := range s.FunctionParameters {
		body := *f
		host, out := r.host, r.out
		r.out = nil
		if len(f.Statements) > 0 {
			r.host = f.Statements[0].Function
		}
		for _, inner := range f.Statements {
			if r.err == nil {
				r.statement(inner)
			}
		}
		body.Statements = r.out
		r.host, r.out = host, out
		copied.FunctionParameters[i] = &body
	}
}

// literal is a rendered attribute.
type literal string

// ToStableHLO returns the text of the attribute.
func (l literal) ToStableHLO() string { return string(l) }

// constant adds a scalar.
func (r *rewriter) constant(text string, dtype dtypes.DType) *stablehlo.Value {
	shape := xshapes.Make(dtype)
	v := r.do(r.host.ConstantFromFlatAndShape(nil, shape))
	r.host.Statements[len(r.host.Statements)-1].Attributes["value"] = literal("dense<" + text + "> : " + shape.ToStableHLO())
	return v
}

func (r *rewriter) float(x float64, dtype dtypes.DType) *stablehlo.Value {
	text := fmt.Sprintf("%e", x)
	if dtype == dtypes.Float64 || x != math.Trunc(x) {
		text = fmt.Sprintf("%.17e", x)
	}
	return r.constant(text, dtype)
}

// spread broadcasts a scalar.
func (r *rewriter) spread(v *stablehlo.Value, dims []int) *stablehlo.Value {
	return r.do(stablehlo.BroadcastInDim(v, xshapes.Make(v.Shape().DType, dims...), nil))
}

// number is the value of a function of the real sizes, of a shape. Numbers of one function
// are computed once, at main's beginning.
func (r *rewriter) number(f *function, shape xshapes.Shape) *stablehlo.Value {
	key := fmt.Sprint("number ", *f, shape.DType)
	v, ok := r.named[key]
	if !ok {
		v = r.early(func() *stablehlo.Value { return r.evaluate(f, shape.DType) })
		r.named[key] = v
	}
	v = r.here(v)
	if shape.Rank() == 0 {
		return v
	}
	return r.write(func() *stablehlo.Value { return r.spread(v, shape.Dimensions) })
}

// evaluate writes factor times the sizes' powers plus offset. What divides is multiplied
// first: 1/(3n) is rounded once.
func (r *rewriter) evaluate(f *function, dtype dtypes.DType) *stablehlo.Value {
	in := dtypes.Float32
	switch {
	case dtype.IsInt():
		in = dtypes.Int64
	case dtype == dtypes.Float64:
		in = dtypes.Float64
	}
	make := func(x float64) *stablehlo.Value {
		if in == dtypes.Int64 {
			return r.constant(fmt.Sprintf("%d", int64(x)), in)
		}
		return r.float(x, in)
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
	top, bottom := make(above), (*stablehlo.Value)(nil)
	if below != 1 {
		bottom = make(below)
	}
	for i, p := range f.powers {
		for range int(math.Ceil(math.Abs(p))) {
			size := r.do(stablehlo.Convert(r.real[i], in))
			if p == 0.5 || p == -0.5 {
				size = r.do(stablehlo.Sqrt(size))
			}
			switch {
			case p > 0:
				top = r.do(stablehlo.Multiply(top, size))
			case bottom == nil:
				bottom = size
			default:
				bottom = r.do(stablehlo.Multiply(bottom, size))
			}
		}
	}
	if bottom != nil {
		top = r.do(stablehlo.Divide(top, bottom))
	}
	if f.offset != 0 {
		top = r.do(stablehlo.Add(top, make(f.offset)))
	}
	if in != dtype {
		top = r.do(stablehlo.Convert(top, dtype))
	}
	return top
}

// limit is the real size of a dimension, an int32 scalar.
func (r *rewriter) limit(d Dim) *stablehlo.Value {
	key := fmt.Sprint("limit ", d)
	v, ok := r.named[key]
	if !ok {
		v = r.real[d.Size]
		if d.Times > 1 {
			v = r.early(func() *stablehlo.Value {
				return r.do(stablehlo.Multiply(v, r.constant(fmt.Sprint(d.Times), dtypes.Int32)))
			})
		}
		r.named[key] = v
	}
	return r.here(v)
}

// inside is true for the elements of a shape that are real along the padded dimensions at.
func (r *rewriter) inside(shape []int, dims []Dim, at []int) *stablehlo.Value {
	var key strings.Builder
	fmt.Fprintf(&key, "inside %v %v", shape, at)
	for _, d := range at {
		fmt.Fprintf(&key, " %v", dims[d])
	}
	build := func() *stablehlo.Value {
		var all *stablehlo.Value
		for _, d := range at {
			limit := r.limit(dims[d])
			line := xshapes.Make(dtypes.Int32, shape[d])
			index := r.do(r.host.Iota(line, 0))
			below := r.do(stablehlo.Compare(index, r.spread(limit, line.Dimensions), types.CompareLT, types.CompareSigned))
			below = r.do(stablehlo.BroadcastInDim(below, xshapes.Make(dtypes.Bool, shape...), []int{d}))
			if all == nil {
				all = below
			} else {
				all = r.do(stablehlo.And(all, below))
			}
		}
		return all
	}
	if r.host != r.main { // a body has its own: it may run where main's is not at hand
		for _, d := range at {
			r.limit(dims[d])
		}
		return r.write(build)
	}
	v, ok := r.named[key.String()]
	if !ok {
		for _, d := range at {
			r.limit(dims[d])
		}
		v = r.early(build)
		r.named[key.String()] = v
	}
	return v
}

// masked is x with its padding along the dimensions at replaced by a scalar.
func (r *rewriter) masked(x *stablehlo.Value, dims []Dim, at []int, fill func() *stablehlo.Value) *stablehlo.Value {
	if len(at) == 0 {
		return x
	}
	shape := x.Shape().Dimensions
	inside := r.inside(shape, dims, at)
	return r.write(func() *stablehlo.Value {
		return r.do(stablehlo.Select(inside, x, r.spread(fill(), shape)))
	})
}

// zero is a dtype's.
func (r *rewriter) zero(dtype dtypes.DType) func() *stablehlo.Value {
	return func() *stablehlo.Value {
		switch {
		case dtype == dtypes.Bool:
			return r.constant("false", dtype)
		case dtype.IsComplex():
			return r.constant("(0.0, 0.0)", dtype)
		case dtype.IsFloat():
			return r.constant("0.0", dtype)
		}
		return r.constant("0", dtype)
	}
}

func (r *rewriter) constantInt(i int) *stablehlo.Value {
	return r.constant(fmt.Sprint(i), dtypes.Int32)
}
