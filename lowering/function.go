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

// Function is a function of a computation: the entry function, another top-level function, or a
// closure. Its methods add ops to the function. A Function is not safe for concurrent use.
type Function struct {
	notimplemented.Function // returns compute.ErrNotImplemented for omitted ops

	builder *Builder
	parent  *Function // nil for top-level functions
	fn      *stablehlo.Function
	name    string
	names   nameSet // shared with the enclosing functions

	parameterNames []string
	parameters     []shapes.Shape
	shards         []shapes.Shape // shapes of the parameters on each device
	outputs        []shapes.Shape // nil until Return
	callDepth      int            // of a top-level function: depth of nested calls
	inlinedCalls   int            // number of calls after inlining

	mayUpdateArgument bool // of a closure: it may update an argument, see hideTripCount

	combiners map[combinerKey]*stablehlo.Function

	convolutions convolutionTracker

	definitions map[string]*stablehlo.Statement // statements indexed so far, by result name
	indexed     int

	halfProducts halfProducts

	irFunction *ir.Function // of a top-level function: the result of the last call of IR
	converter  *irConverter
}

var _ compute.Function = (*Function)(nil)

func newFunction(b *Builder, parent *Function, fn *stablehlo.Function, name string) *Function {
	f := &Function{
		builder:   b,
		parent:    parent,
		fn:        fn,
		name:      name,
		names:     nameSet{},
		combiners: map[combinerKey]*stablehlo.Function{},

		definitions:  map[string]*stablehlo.Statement{},
		convolutions: convolutionTracker{map[string]plainConvolution{}, map[string]tensorSlice{}},
		halfProducts: halfProducts{map[string][][]int{}, map[string]halfVersion{}},
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

func (f *Function) Builder() compute.Builder { return f.builder }

// Parent returns the enclosing function of a closure, or nil for a top-level function.
func (f *Function) Parent() compute.Function {
	if f.parent == nil {
		return nil
	}
	return f.parent
}

// checkOpen returns an error if no op can be added to f, for example after Return.
func (f *Function) checkOpen() error {
	if err := f.builder.checkUsable(); err != nil {
		return err
	}
	if f.outputs != nil {
		return errors.New("Return was already called on the function")
	}
	return nil
}

// Shape returns the shape of a value of this computation.
func (f *Function) Shape(v compute.Value) (shapes.Shape, error) { return f.builder.OpShape(v) }

// Closure starts a nested function for If, While or Sort. The closure may use values of f.
func (f *Function) Closure() (compute.Function, error) {
	if err := f.checkOpen(); err != nil {
		return nil, &OpError{Op: "Closure", Function: f.name, Err: err}
	}
	return newFunction(f.builder, f, f.fn.Closure(), ""), nil
}

// Parameter adds an argument, whose name must be unique in f. spec is the argument's sharding in a
// distributed computation. An argument of the entry function is replicated if spec is nil.
func (f *Function) Parameter(name string, shape shapes.Shape, spec *compute.ShardingSpec) (compute.Value, error) {
	return f.addParameter(name, shape, spec, true)
}

// addParameter is like Parameter, but skips Options.Parameter if ask is false.
func (f *Function) addParameter(name string, shape shapes.Shape, spec *compute.ShardingSpec, ask bool) (compute.Value,
	error) {
	v, err := f.addOp(fmt.Sprintf("Parameter %q", name), nil, func([]*stablehlo.Value) *stablehlo.Value {
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
			sharding, shard, err = f.builder.convertSharding(fmt.Sprintf("parameter %q", name), shape, spec)
			check(err)
		}
		written := name
		if f.builder.backend.opts.Numbered && f == f.builder.main {
			written = fmt.Sprintf("p%d", len(f.parameters))
		}
		v := must(f.fn.NamedInputWithSharding(f.names.uniqueName(written), s, sharding))
		f.parameterNames = append(f.parameterNames, name)
		f.parameters, f.shards = append(f.parameters, shape.Clone()), append(f.shards, shard.Clone())
		return v
	})
	if err == nil && f == f.builder.main {
		f.builder.origins.addParameter(name, v.(*Value))
	}
	return v, err
}

// Constant adds a constant from a flat slice in row-major order. It copies the elements into the
// program's text, or uses the parameter that Options.Constant returns.
func (f *Function) Constant(flat any, dims ...int) (compute.Value, error) {
	if v, err := f.replaceConstant(flat, dims); v != nil || err != nil {
		return v, err
	}
	return f.addOp("Constant", nil, func([]*stablehlo.Value) *stablehlo.Value {
		value, shape := constantFromFlat(flat, dims)
		return must(addConstant(f.fn, value, shape))
	})
}

// Return ends the function with the given results and, in a distributed computation, their
// shardings.
func (f *Function) Return(outputs []compute.Value, shardings []*compute.ShardingSpec) error {
	_, err := f.addOps("Return", outputs, func(in []*stablehlo.Value) []*stablehlo.Value {
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
		take := f.calledResultShardings
		if f == f.builder.main {
			take = f.mainResultShardings
		}
		specs := must(take(results, shardings))
		if f.parent == nil && f.name != compute.MainName && len(f.parameters) == 0 {
			// The StableHLO builder rejects calls without operands, so the function gets an unused
			// parameter.
			must(f.fn.NamedInput(f.names.uniqueName("unused"), xshapes.Make(dtypes.Bool)))
		}
		check(f.fn.ReturnWithShardingAndAttributes(in, specs, nil))
		f.outputs = results
		return nil
	})
	return err
}

// Identity returns x, or calls Options.Identity if that is not nil.
func (f *Function) Identity(x compute.Value) (compute.Value, error) {
	return f.addOp("Identity", valueList(x), func(in []*stablehlo.Value) *stablehlo.Value {
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

func (f *Function) topLevel() *Function {
	for f.parent != nil {
		f = f.parent
	}
	return f
}

// definition returns the statement of f or an enclosing function that defines a value, or nil for
// an argument.
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
