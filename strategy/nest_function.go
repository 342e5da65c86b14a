package strategy

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"sync"

	"github.com/gomlx/gomlx/core/graph"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/lowering/spmd"
	"github.com/tpustrategy/tpustrategy/strategy/internal/fault"
	"github.com/tpustrategy/tpustrategy/strategy/internal/nesting"
)

// NestStepFunc builds the graph of a step that takes and returns nests. args are the arguments of
// [NestFunction.Run], with a *[graph.Node] in place of each tensor and everything else as it was
// given; the step may change them. It returns a nest with a *[graph.Node] for each tensor. A part of
// the result without nodes, such as nil, a number or a variable, goes to the caller of each run as
// it is. The strategy calls it once for each signature; see [StepFunc].
type NestStepFunc func(rc *ReplicaContext, args []any) any

// NestFunction is a step function that takes and returns nests, as TensorFlow's Strategy.run takes
// args and kwargs and returns a structure. For each structure of the arguments it has a [Function]
// of their leaves. It is safe for concurrent use.
//
// A nest is made of slices and maps of any (or of nests) and of structs with such fields, all
// exported. Keyword arguments are a map[string]any or such a struct. A leaf is
//
//   - a tensor: a *[PerReplica] or *[Mirrored] of the strategy, or a host value, which
//     is a *tensors.Tensor, a number or a bool, or slices of them. The step receives a
//     *[graph.Node] for it;
//   - a *[Variable], which the step reads and writes by its [ReplicaContext];
//   - [Objects] that are the same on every replica: the step receives that object. One
//     trace stands for all replicas, so different objects are an error;
//   - anything else: nil, a string, a value of a named type such as time.Duration, an
//     array or a struct that is no nest, a pointer, a channel or a function.
//
// Every leaf that is no tensor is static: the step sees the value itself, and another value is
// another signature, for which the step is traced and compiled again. Static values are compared by
// ==, pointers and functions by identity. So a function literal or a pointer that is made anew for
// each run compiles in each run, and is kept as long as the NestFunction. Give a number that the
// step must know while it is traced, such as an axis, as Objects or as a value of a named type.
type NestFunction struct {
	strategy *TPUStrategy
	step     NestStepFunc
	opts     FunctionOptions

	mu        sync.Mutex
	functions []nestSignature // guarded by mu, as is closed
	closed    bool
}

// nestSignature is the function for one structure of the arguments and its statics.
type nestSignature struct {
	args     []any // with a nil *graph.Node in place of each tensor
	function *Function
}

// NestFunction returns a function of the strategy whose step takes and returns nests: TensorFlow's
// tf.function of nested structures. Nothing is traced until it runs.
//
// The options Arguments and Results count the tensors among the leaves of all arguments, and of the
// result: slices and struct fields in order, the values of a map by ascending key.
// [ReplicaContext.RealSize] counts in the same way. SplitBatch and LocalBatch cut every host
// tensor; give a tensor that all replicas share as a *[Mirrored].
func (s *TPUStrategy) NestFunction(step NestStepFunc, opts FunctionOptions) *NestFunction {
	if opts.Name == "" {
		opts.Name = "step"
	}
	return &NestFunction{strategy: s, step: step, opts: opts}
}

// Run runs the function on every replica, like [Function.Run], and returns the nest that the step
// returned, with a *[PerReplica] in place of each node. These values are the caller's; everything
// else in the nest is as the step returned it.
//
// Errors: those of Function.Run, an [*ArgumentError] with the leaf's Path; an [*Error] for
// arguments or a result that are no nest, the latter in a [*TraceError]. Its kind is ValueError for
// a nest that is too deep or holds itself. It is TypeError for a member that cannot hold what
// stands for a tensor, and for a result that is a nil node, a node of another graph, or a value
// that is no nest but has nodes in it, such as a []*[graph.Node].
func (f *NestFunction) Run(ctx context.Context, args ...any) (any, error) {
	function, paths, values, err := f.function(args)
	if err != nil {
		return nil, err
	}
	p, results, err := function.run(ctx, values)
	if err != nil {
		return nil, located(err, paths)
	}
	return fill(f.opts.Name, p.structure, results)
}

// Lowered does what [Function.Lowered] does, for the tensors of the nests in the order of their
// leaves.
func (f *NestFunction) Lowered(ctx context.Context, args ...any) (*spmd.Module, error) {
	function, paths, values, err := f.function(args)
	if err != nil {
		return nil, err
	}
	m, err := function.Lowered(ctx, values...)
	return m, located(err, paths)
}

// Compiled does what [Function.Compiled] does, for the tensors of the nests in the order of their
// leaves.
func (f *NestFunction) Compiled(ctx context.Context, args ...any) (*CompiledStep, error) {
	function, paths, values, err := f.function(args)
	if err != nil {
		return nil, err
	}
	c, err := function.Compiled(ctx, values...)
	return c, located(err, paths)
}

// located gives the error of a tensor its place in the nests.
func located(err error, paths []string) error {
	if wrong, ok := err.(*ArgumentError); ok {
		wrong.at(paths[wrong.Argument])
	}
	return err
}

// at sets the place of a leaf.
func (e *ArgumentError) at(path string) {
	e.Path = path
	_, _ = fmt.Sscanf(path, "args[%d]", &e.Argument) // every path begins so
}

// function returns the function for the structure of the arguments, making it if it is new, and
// their tensors with the paths of these.
func (f *NestFunction) function(args []any) (function *Function, paths []string, values []any, err error) {
	template, paths, values, err := f.flatten(args)
	if err != nil {
		return nil, nil, nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return nil, nil, nil, closed("function %s", f.opts.Name)
	}
	for _, known := range f.functions {
		if equalNests(known.args, template) {
			return known.function, paths, values, nil
		}
	}
	if !equalNests(template, template) {
		return nil, nil, nil, fault.New(errkind.ValueError, f.opts.Name, "give a NaN as a tensor", "a static value is not equal to itself")
	}
	var step StepFunc
	if f.step != nil {
		step = f.flatStep(template)
	}
	function = f.strategy.Function(step, f.opts)
	f.functions = append(f.functions, nestSignature{template, function})
	return function, paths, values, nil
}

// Close frees what the function has on the devices, as [Function.Close] does.
func (f *NestFunction) Close() error {
	f.mu.Lock()
	functions := f.functions
	f.functions, f.closed = nil, true
	f.mu.Unlock()
	var errs []error
	for _, known := range functions {
		errs = append(errs, known.function.Close())
	}
	return errors.Join(errs...)
}

// equalNests reports whether nests have one structure and the same leaves.
func equalNests(a, b []any) bool {
	_, err := nesting.Zip("compare", []any{a, b}, func(_ string, leaves []any) (any, error) {
		if !nesting.Same(leaves[0], leaves[1]) {
			return nil, errors.New("another leaf")
		}
		return nil, nil
	})
	return err == nil
}

// flatten takes the tensors out of the arguments.
func (f *NestFunction) flatten(args []any) (template []any, paths []string, values []any, err error) {
	nest, err := nesting.MapAt(f.opts.Name, "args", args, func(path string, x any) (any, error) {
		static, isTensor, wrong := f.strategy.nestLeaf(x)
		switch {
		case wrong != nil:
			wrong.Function = f.opts.Name
			wrong.at(path)
			return nil, wrong
		case isTensor:
			paths, values = append(paths, path), append(values, x)
			return (*graph.Node)(nil), nil
		}
		return static, nil
	})
	if err != nil {
		return nil, nil, nil, err
	}
	return nest.([]any), paths, values, nil
}

// fill puts the leaves, in order, in place of the nil pointers of their type.
func fill[T any](op string, template any, leaves []*T) (any, error) {
	return nesting.Map(op, template, func(_ string, x any) (any, error) {
		if empty, ok := x.(*T); ok && empty == nil {
			x, leaves = leaves[0], leaves[1:]
		}
		return x, nil
	})
}

// flatStep is the step for arguments of one structure, as a step of their tensors.
func (f *NestFunction) flatStep(template []any) StepFunc {
	return func(rc *ReplicaContext, in []*graph.Node) []*graph.Node {
		args, err := fill(f.opts.Name, template, in)
		if err != nil {
			panic(err)
		}
		var nodes []*graph.Node
		rc.structure, err = nesting.MapAt(f.opts.Name, "result", f.step(rc, args.([]any)), func(path string, x any) (any, error) {
			node, ok := x.(*graph.Node)
			switch {
			case !ok:
				return x, f.isResult(path, x)
			case node == nil:
				return nil, fault.New(errkind.TypeError, f.opts.Name, "return a node, or nil of no type", "%s is a nil node", path)
			case node.Graph() != rc.graph:
				return nil, fault.New(errkind.TypeError, f.opts.Name, "return nodes of this trace", "%s is a node of another graph", path)
			}
			nodes = append(nodes, node)
			return (*PerReplica)(nil), nil
		})
		if err != nil {
			panic(err)
		}
		return nodes
	}
}

// isResult refuses a leaf of a result that must not leave the trace.
func (f *NestFunction) isResult(path string, x any) error {
	switch x.(type) {
	case Value, part:
		return fault.New(errkind.TypeError, f.opts.Name, "pass it as an argument and return its node", "%s is a %T, which is no result of the step", path, x)
	}
	v, pointsToNest := reflect.ValueOf(x), false
	if v.Kind() == reflect.Pointer { // what it points to may be in use elsewhere: its type is all that is looked at
		v = reflect.Zero(v.Type().Elem())
		pointsToNest = nesting.Is(v.Type())
	}
	if pointsToNest || holds(v, 0, func(t reflect.Type) bool { return t == reflect.TypeFor[*graph.Node]() }) {
		return fault.New(errkind.TypeError, f.opts.Name, anyMembers, "%s is a %T: it is no nest, and may have nodes in it", path, x)
	}
	return nil
}
