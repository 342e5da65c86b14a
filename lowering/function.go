package lowering

import (
	"errors"
	"fmt"
	"slices"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/notimplemented"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/go-xla/stablehlo"
	xshapes "github.com/gomlx/go-xla/types/shapes"
	"github.com/gomlx/go-xla/types/shardy"

	"github.com/tpustrategy/tpustrategy/lowering/ir"
)

// Function is one function of a computation: the entry function, another top-level function, or a
// closure. Its methods add ops to it. It is not safe for concurrent use.
type Function struct {
	notimplemented.Function // returns compute.ErrNotImplemented for omitted ops

	builder *Builder
	parent  *Function // nil for top-level functions
	fn      *stablehlo.Function
	name    string
	names   names // shared with the enclosing functions

	parameterNames []string
	parameters     []shapes.Shape
	shards         []shapes.Shape // shapes of the parameters on each device
	outputs        []shapes.Shape // nil until Return
	calls          int            // of a top-level function: depth of nested calls
	inlined        int            // number of calls after inlining

	updatesState bool // of a closure: it may update an argument, see lasting

	combiners map[combinerKey]*stablehlo.Function

	origins origins

	definitions map[string]*stablehlo.Statement // statements indexed so far, by result name
	indexed     int

	halves halves

	draft *ir.Function // of a top-level function: the result of the last call of IR
	taker *taker
}

var _ compute.Function = (*Function)(nil)

func newFunction(b *Builder, parent *Function, fn *stablehlo.Function, name string) *Function {
	f := &Function{
		builder:   b,
		parent:    parent,
		fn:        fn,
		name:      name,
		names:     names{},
		combiners: map[combinerKey]*stablehlo.Function{},

		definitions: map[string]*stablehlo.Statement{},
		origins:     origins{map[string]plainConvolution{}, map[string]tensorSlice{}},
		halves:      halves{map[string][][]int{}, map[string]narrowing{}},
	}
	if parent != nil {
		f.names = parent.names
	}
	f.Function = notimplemented.Function{ErrFn: func(op compute.OpType) error {
		return &OpError{Op: op.String(), Function: name, Err: compute.ErrNotImplemented}
	}}
	return f
}

// Name returns the function's name, "" for a closure.
func (f *Function) Name() string { return f.name }

// Builder returns the computation that contains f.
func (f *Function) Builder() compute.Builder { return f.builder }

// Parent returns the enclosing function of a closure, nil for a top-level function.
func (f *Function) Parent() compute.Function {
	if f.parent == nil {
		return nil
	}
	return f.parent
}

// check returns an error if no op can be added to f.
func (f *Function) check() error {
	if err := f.builder.check(); err != nil {
		return err
	}
	if f.outputs != nil {
		return errors.New("Return was already called on the function")
	}
	return nil
}

// Shape returns the shape of a value of this computation.
func (f *Function) Shape(v compute.Value) (shapes.Shape, error) { return f.builder.OpShape(v) }

// Closure starts a function that is nested in f, for If, While and Sort. The closure may use values
// of f.
func (f *Function) Closure() (compute.Function, error) {
	if err := f.check(); err != nil {
		return nil, &OpError{Op: "Closure", Function: f.name, Err: err}
	}
	return newFunction(f.builder, f, f.fn.Closure(), ""), nil
}

// Parameter adds an argument. Names must be unique in a function. spec is its sharding in a
// distributed computation. An argument of the entry function with a nil spec is replicated.
func (f *Function) Parameter(name string, shape shapes.Shape, spec *compute.ShardingSpec) (compute.Value, error) {
	return f.parameter(name, shape, spec, true)
}

// parameter adds an argument. It calls Options.Parameter if ask is set.
func (f *Function) parameter(name string, shape shapes.Shape, spec *compute.ShardingSpec, ask bool) (compute.Value, error) {
	v, err := f.op(fmt.Sprintf("Parameter %q", name), nil, func([]*stablehlo.Value) *stablehlo.Value {
		if slices.Contains(f.parameterNames, name) {
			panic(errors.New("a parameter of this name already exists"))
		}
		if allow := f.builder.backend.opts.Parameter; allow != nil && ask && f == f.builder.main {
			check(allow(name, shape))
		}
		s := must(StableHLOShape(shape))
		var sharding *shardy.ShardingSpec
		shard := shape
		if f == f.builder.main || spec != nil {
			var err error
			sharding, shard, err = f.builder.sharding(fmt.Sprintf("parameter %q", name), shape, spec)
			check(err)
		}
		written := name
		if f.builder.backend.opts.Numbered && f == f.builder.main {
			written = fmt.Sprintf("p%d", len(f.parameters))
		}
		v := must(f.fn.NamedInputWithSharding(f.names.pick(written), s, sharding))
		f.parameterNames = append(f.parameterNames, name)
		f.parameters, f.shards = append(f.parameters, shape.Clone()), append(f.shards, shard.Clone())
		return v
	})
	if err == nil && f == f.builder.main {
		f.builder.lines.parameter(name, v.(*Value))
	}
	return v, err
}

// Constant adds a constant from a flat slice in row-major order. The elements are copied into the
// program's text, unless Options.Constant returns a parameter that replaces the constant.
func (f *Function) Constant(flat any, dims ...int) (compute.Value, error) {
	if v, err := f.replaceConstant(flat, dims); v != nil || err != nil {
		return v, err
	}
	return f.op("Constant", nil, func([]*stablehlo.Value) *stablehlo.Value {
		value, shape := literal(flat, dims)
		return must(dense(f.fn, value, shape))
	})
}

// Return ends the function with the given results.
func (f *Function) Return(outputs []compute.Value, shardings []*compute.ShardingSpec) error {
	_, err := f.ops("Return", outputs, func(in []*stablehlo.Value) []*stablehlo.Value {
		if len(outputs) == 0 {
			panic(errors.New("at least one output is needed"))
		}
		if len(shardings) > 0 && len(shardings) != len(outputs) {
			panic(fmt.Errorf("%d shardings for %d outputs", len(shardings), len(outputs)))
		}
		results := make([]shapes.Shape, len(in))
		for i, v := range in {
			results[i] = ShapeOf(v.Shape())
		}
		take := f.namedShardings
		if f == f.builder.main {
			take = f.resultShardings
		}
		specs := must(take(results, shardings))
		if f.parent == nil && f.name != compute.MainName && len(f.parameters) == 0 {
			// The StableHLO builder rejects calls without operands, so the function gets an unused
			// parameter.
			must(f.fn.NamedInput(f.names.pick("unused"), xshapes.Make(dtypes.Bool)))
		}
		check(f.fn.ReturnWithShardingAndAttributes(in, specs, nil))
		f.outputs = results
		return nil
	})
	return err
}

// Identity returns x, or the result of Options.Identity.
func (f *Function) Identity(x compute.Value) (compute.Value, error) {
	return f.op("Identity", with(x), func(in []*stablehlo.Value) *stablehlo.Value {
		hook := f.builder.backend.opts.Identity
		if hook == nil {
			return in[0]
		}
		v := must(hook(f, in[0]))
		if v == nil {
			panic(errors.New("Options.Identity returned neither a value nor an error"))
		}
		return v
	})
}

// top returns the top-level function that contains f.
func (f *Function) top() *Function {
	for f.parent != nil {
		f = f.parent
	}
	return f
}

// definition returns the statement of f, or of an enclosing function, that defines the named value.
// It returns nil for an argument.
func (f *Function) definition(name string) *stablehlo.Statement {
	for ; f != nil; f = f.parent {
		for ; f.indexed < len(f.fn.Statements); f.indexed++ {
			for _, out := range f.fn.Statements[f.indexed].Outputs {
				f.definitions[out.String()] = f.fn.Statements[f.indexed]
			}
		}
		if s := f.definitions[name]; s != nil {
			return s
		}
	}
	return nil
}
