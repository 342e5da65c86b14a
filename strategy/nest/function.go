package nest

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"sync"

	"github.com/gomlx/gomlx/core/graph"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/internal/engine/fault"
	"github.com/tpustrategy/tpustrategy/internal/engine/inside"
	"github.com/tpustrategy/tpustrategy/internal/engine/nesting"
	"github.com/tpustrategy/tpustrategy/internal/engine/stepstate"
	"github.com/tpustrategy/tpustrategy/lowering/spmd"
	"github.com/tpustrategy/tpustrategy/strategy"
)

// StepFunc builds the graph of a step that takes and returns nests. args are the arguments of
// [Function.Run], with a *[graph.Node] in place of each tensor and everything else as it was
// given; the step may change them. It returns a nest with a *[graph.Node] for each tensor. A part of
// the result without nodes, such as nil, a number or a variable, goes to the caller of each run as
// it is. The strategy calls it once for each signature; see [strategy.StepFunc].
type StepFunc func(rc *strategy.ReplicaContext, args []any) any

// Function is a step function that takes and returns nests, as TensorFlow's Strategy.run takes args
// and kwargs and returns a structure. For each structure of the arguments it has a
// [strategy.Function] of their leaves. It is safe for concurrent use.
//
// A nest is made of slices and maps of any (or of nests) and of structs with such fields, all
// exported. Keyword arguments are a map[string]any or such a struct. A leaf is
//
//   - a tensor: a *[strategy.PerReplica] or *[strategy.Mirrored] of the strategy, or a host value, which
//     is a *tensors.Tensor, a number or a bool, or slices of them. The step receives a
//     *[graph.Node] for it;
//   - a *[strategy.Variable], which the step reads and writes by its [strategy.ReplicaContext];
//   - [strategy.Objects] that are the same on every replica: the step receives that object. One
//     trace stands for all replicas, so different objects are an error;
//   - anything else: nil, a string, a value of a named type such as time.Duration, an
//     array or a struct that is no nest, a pointer, a channel or a function.
//
// Every leaf that is no tensor is static: the step sees the value itself, and another value is
// another signature, for which the step is traced and compiled again. Static values are compared by
// ==, pointers and functions by identity. So a function literal or a pointer that is made anew for
// each run compiles in each run, and is kept as long as the Function. Give a number that the
// step must know while it is traced, such as an axis, as Objects or as a value of a named type.
type Function struct {
	strategy *strategy.TPUStrategy
	step     StepFunc
	opts     strategy.FunctionOptions

	mu        sync.Mutex
	functions []signature // guarded by mu, as is closed
	closed    bool
}

// signature is the function for one structure of the arguments and its statics.
type signature struct {
	args     []any // with a nil *graph.Node in place of each tensor
	function *strategy.Function
}

// New returns a function of the strategy whose step takes and returns nests: TensorFlow's
// tf.function of nested structures. Nothing is traced until it runs.
//
// The options Arguments and Results count the tensors among the leaves of all arguments, and of the
// result: slices and struct fields in order, the values of a map by ascending key.
// [strategy.ReplicaContext.RealSize] counts in the same way. SplitBatch and LocalBatch cut every host
// tensor; give a tensor that all replicas share as a *[strategy.Mirrored].
func New(s *strategy.TPUStrategy, step StepFunc, opts strategy.FunctionOptions) *Function {
	if opts.Name == "" {
		opts.Name = "step"
	}
	return &Function{strategy: s, step: step, opts: opts}
}

// Run runs the function on every replica, like [strategy.Function.Run], and returns the nest that the step
// returned, with a *[strategy.PerReplica] in place of each node. These values are the caller's; everything
// else in the nest is as the step returned it.
//
// Errors: those of strategy.Function.Run, an [*strategy.ArgumentError] with the leaf's Path; an [*strategy.Error] for
// arguments or a result that are no nest, the latter in a [*strategy.TraceError]. Its kind is ValueError for
// a nest that is too deep or holds itself. It is TypeError for a member that cannot hold what
// stands for a tensor, and for a result that is a nil node, a node of another graph, or a value
// that is no nest but has nodes in it, such as a []*[graph.Node].
func (f *Function) Run(ctx context.Context, args ...any) (any, error) {
	run, paths, values, err := f.function(args)
	if err != nil {
		return nil, err
	}
	structure, results, err := inside.Of[function](run).RunStructured(ctx, values)
	if err != nil {
		return nil, located(err, paths)
	}
	return fill(f.opts.Name, structure, results)
}

// Lowered does what [strategy.Function.Lowered] does, for the tensors of the nests in the order of their
// leaves.
func (f *Function) Lowered(ctx context.Context, args ...any) (*spmd.Module, error) {
	function, paths, values, err := f.function(args)
	if err != nil {
		return nil, err
	}
	m, err := function.Lowered(ctx, values...)
	return m, located(err, paths)
}

// Compiled does what [strategy.Function.Compiled] does, for the tensors of the nests in the order of their
// leaves.
func (f *Function) Compiled(ctx context.Context, args ...any) (*strategy.CompiledStep, error) {
	function, paths, values, err := f.function(args)
	if err != nil {
		return nil, err
	}
	c, err := function.Compiled(ctx, values...)
	return c, located(err, paths)
}

// located gives the error of a tensor its place in the nests.
func located(err error, paths []string) error {
	if wrong, ok := err.(*strategy.ArgumentError); ok {
		place(wrong, paths[wrong.Argument])
	}
	return err
}

// place gives an error the place of its leaf.
func place(e *strategy.ArgumentError, path string) {
	e.Path = path
	_, _ = fmt.Sscanf(path, "args[%d]", &e.Argument) // every path begins so
}

// function returns the function for the structure of the arguments, making it if it is new, and
// their tensors with the paths of these.
func (f *Function) function(args []any) (flat *strategy.Function, paths []string, values []any, err error) {
	template, paths, values, err := f.flatten(args)
	if err != nil {
		return nil, nil, nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return nil, nil, nil, &strategy.Error{Reason: "function " + f.opts.Name, Match: strategy.ErrClosed}
	}
	for _, known := range f.functions {
		if equalNests(known.args, template) {
			return known.function, paths, values, nil
		}
	}
	if !equalNests(template, template) {
		return nil, nil, nil, fault.New(errkind.ValueError, f.opts.Name, "give a NaN as a tensor", "a static value is not equal to itself")
	}
	var step strategy.StepFunc
	if f.step != nil {
		step = f.flatStep(template)
	}
	flat = f.strategy.Function(step, f.opts)
	inside.Of[function](flat).SetPaths(paths)
	f.functions = append(f.functions, signature{template, flat})
	return flat, paths, values, nil
}

// Close frees what the function has on the devices, as [strategy.Function.Close] does.
func (f *Function) Close() error {
	if f == nil {
		return nil
	}
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

// What this package uses of package strategy beside its contract.
var (
	_ = inside.Of[machine]((*strategy.TPUStrategy)(nil))
	_ = inside.Of[function]((*strategy.Function)(nil))
	_ = inside.Of[replica]((*strategy.ReplicaContext)(nil))
)

type (
	machine interface {
		// CheckLeaf says what is wrong with a value, a variable or a part of one.
		CheckLeaf(x any) (reason string, err error)
	}
	function interface {
		// RunStructured is Function.Run, and returns the structure of the program that ran.
		RunStructured(ctx context.Context, args []any) (structure any, results []*strategy.PerReplica, err error)
		// SetPaths sets the names of the arguments in errors.
		SetPaths(paths []string)
	}
	replica interface {
		// State is what is kept of the step while it is traced.
		State() *stepstate.State
	}
)

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
func (f *Function) flatten(args []any) (template []any, paths []string, values []any, err error) {
	nest, err := nesting.MapAt(f.opts.Name, "args", args, func(path string, x any) (any, error) {
		static, isTensor, wrong := leaf(f.strategy, x)
		switch {
		case wrong != nil:
			wrong.Function = f.opts.Name
			place(wrong, path)
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
func (f *Function) flatStep(template []any) strategy.StepFunc {
	return func(rc *strategy.ReplicaContext, in []*graph.Node) []*graph.Node {
		args, err := fill(f.opts.Name, template, in)
		if err != nil {
			panic(err)
		}
		var nodes []*graph.Node
		structure, err := nesting.MapAt(f.opts.Name, "result", f.step(rc, args.([]any)), func(path string, x any) (any, error) {
			node, ok := x.(*graph.Node)
			switch {
			case !ok:
				return x, f.isResult(path, x)
			case node == nil:
				return nil, fault.New(errkind.TypeError, f.opts.Name, "return a node, or nil of no type", "%s is a nil node", path)
			case node.Graph() != rc.Graph():
				return nil, fault.New(errkind.TypeError, f.opts.Name, "return nodes of this trace", "%s is a node of another graph", path)
			}
			nodes = append(nodes, node)
			return (*strategy.PerReplica)(nil), nil
		})
		if err != nil {
			panic(err)
		}
		inside.Of[replica](rc).State().Structure = structure
		return nodes
	}
}

// isResult refuses a leaf of a result that must not leave the trace.
func (f *Function) isResult(path string, x any) error {
	switch x.(type) {
	case strategy.Value, part:
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
