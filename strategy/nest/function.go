package nest

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"sync"

	"github.com/gomlx/gomlx/core/graph"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/internal/engine"
	"github.com/tpustrategy/tpustrategy/internal/engine/fault"
	"github.com/tpustrategy/tpustrategy/internal/engine/nesting"
	"github.com/tpustrategy/tpustrategy/lowering/spmd"
	"github.com/tpustrategy/tpustrategy/strategy"
)

// StepFunc builds the graph of a step whose arguments and results are nests. It receives the
// arguments of [Function.Run], with each tensor replaced by a *[graph.Node]. The step may modify
// args. It returns a nest with a *[graph.Node] for each tensor. Each run returns all other leaves
// of this nest unchanged, such as a number or a variable. See [strategy.StepFunc].
type StepFunc func(rc *strategy.ReplicaContext, args []any) any

// Function is a step function whose arguments and results are nests, like the args, kwargs and
// result of TensorFlow's Strategy.run. It is safe for concurrent use.
//
// A nest consists of slices and maps of any (or of nests) and of structs with such fields, all
// exported. Keyword arguments are a map[string]any or such a struct. A leaf is one of the
// following:
//
//   - a tensor: a *[strategy.PerReplica] or *[strategy.Mirrored] of the strategy, or a host value,
//
// which is a *tensors.Tensor, a number, a bool, or slices of numbers or bools. The step receives a
// *[graph.Node];
//   - a *[strategy.Variable], which the step reads and writes with its [strategy.ReplicaContext];
//   - [strategy.Objects] with the same object for every replica: the step receives that object.
//
// Different objects are an error, because one trace represents all replicas;
//   - any other value: nil, a string, a value of a named type such as time.Duration, an array or a
//
// struct that is not a nest, a pointer, a channel or a function.
//
// Every leaf that is not a tensor is static: the step receives the value itself, and is traced and
// compiled again for a different value. Static values are compared with ==, pointers and functions
// by identity. A function literal or pointer that is created for each run therefore causes a
// compilation in each run, and the Function retains it. To pass a number that the step needs while
// it is traced, such as an axis, use Objects or a value of a named type.
type Function struct {
	strategy *strategy.TPUStrategy
	step     StepFunc
	opts     strategy.FunctionOptions

	mu        sync.Mutex
	functions []signature // guarded by mu, like closed
	closed    bool
}

// signature is the function for arguments with one structure and one set of static values.
type signature struct {
	args     []any // each tensor is replaced by a nil *graph.Node
	function *strategy.Function
}

// New returns a function of the strategy whose arguments and result are nests, like TensorFlow's
// tf.function with nested structures. Nothing is traced before the first run.
//
// The options Arguments and Results have an entry for each tensor of all arguments, and of the
// result: slices and struct fields in order, the values of a map by ascending key.
// [strategy.ReplicaContext.ValidSize] uses the same numbering. SplitBatch and LocalBatch split
// every host tensor; pass a tensor that all replicas share as a *[strategy.Mirrored].
func New(s *strategy.TPUStrategy, step StepFunc, opts strategy.FunctionOptions) *Function {
	if opts.Name == "" {
		opts.Name = "step"
	}
	return &Function{strategy: s, step: step, opts: opts}
}

// Run runs the function on every replica, like [strategy.Function.Run]. It returns the nest that
// the step returned, with each node replaced by a *[strategy.PerReplica]. The caller owns these
// values.
//
// Run returns the errors of strategy.Function.Run. An [*strategy.ArgumentError] contains the leaf's
// Path. For an invalid nest Run returns an [*strategy.Error], which is wrapped in a
// [*strategy.TraceError] if the nest is a result. Its kind is ValueError for a nest that is too
// deep or contains itself. Its kind is TypeError for a member whose type cannot contain a tensor,
// and for a result that is a nil node, a node of another graph, or a value with nodes that is not a
// nest, such as a []*[graph.Node].
func (f *Function) Run(ctx context.Context, args ...any) (any, error) {
	run, paths, values, err := f.functionFor(args)
	if err != nil {
		return nil, err
	}
	structure, results, err := engine.Internal(run).RunStructured(ctx, values)
	if err != nil {
		return nil, addLocation(err, paths)
	}
	return fillTemplate(f.opts.Name, structure, results)
}

// Lowered is like [strategy.Function.Lowered], with nests as arguments. The module's arguments are
// the tensors of the nests, in order.
func (f *Function) Lowered(ctx context.Context, args ...any) (*spmd.Module, error) {
	function, paths, values, err := f.functionFor(args)
	if err != nil {
		return nil, err
	}
	m, err := function.Lowered(ctx, values...)
	return m, addLocation(err, paths)
}

// Compiled is like [strategy.Function.Compiled], with nests as arguments. The step's arguments are
// the tensors of the nests, in order.
func (f *Function) Compiled(ctx context.Context, args ...any) (*strategy.CompiledStep, error) {
	function, paths, values, err := f.functionFor(args)
	if err != nil {
		return nil, err
	}
	c, err := function.Compiled(ctx, values...)
	return c, addLocation(err, paths)
}

// addLocation adds to an error about a tensor the position of the tensor in the arguments.
func addLocation(err error, paths []string) error {
	if wrong, ok := err.(*strategy.ArgumentError); ok {
		setLocation(wrong, paths[wrong.Argument])
	}
	return err
}

// setLocation adds to an error the position of a leaf in the arguments.
func setLocation(e *strategy.ArgumentError, path string) {
	e.Path = path
	_, _ = fmt.Sscanf(path, "args[%d]", &e.Argument) // every path has this prefix
}

// functionFor returns the function for arguments with this structure, and creates it if the
// structure is new. It also returns the tensors in the arguments and their paths.
func (f *Function) functionFor(args []any) (flat *strategy.Function, paths []string, values []any, err error) {
	template, paths, values, err := f.flatten(args)
	if err != nil {
		return nil, nil, nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return nil, nil, nil, &strategy.Error{Op: "nest", Reason: "function " + f.opts.Name + " is closed",
			Match: strategy.ErrClosed, Hint: "close it after its last run"}
	}
	for _, known := range f.functions {
		if equalNests(known.args, template) {
			return known.function, paths, values, nil
		}
	}
	if !equalNests(template, template) {
		return nil, nil, nil, fault.New(errkind.ValueError, f.opts.Name, "give a NaN as a tensor",
			"a static value is not equal to itself")
	}
	var step strategy.StepFunc
	if f.step != nil {
		step = f.flatStep(template)
	}
	flat = f.strategy.Function(step, f.opts)
	engine.Internal(flat).SetArgumentPaths(paths)
	f.functions = append(f.functions, signature{template, flat})
	return flat, paths, values, nil
}

// Close frees the function's device memory, like [strategy.Function.Close].
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

func equalNests(a, b []any) bool {
	_, err := nesting.Zip("compare", []any{a, b}, func(_ string, leaves []any) (any, error) {
		if !nesting.IsSameLeaf(leaves[0], leaves[1]) {
			return nil, errors.New("another leaf")
		}
		return nil, nil
	})
	return err == nil
}

// flatten extracts the tensors and their paths from the arguments. The result template is a copy of
// args in which each tensor is replaced by a nil *graph.Node.
func (f *Function) flatten(args []any) (template []any, paths []string, values []any, err error) {
	nest, err := nesting.MapAt(f.opts.Name, "args", args, func(path string, x any) (any, error) {
		static, isTensor, wrong := classifyLeaf(f.strategy, x)
		switch {
		case wrong != nil:
			wrong.Function = f.opts.Name
			setLocation(wrong, path)
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

// fillTemplate replaces the nil pointers of type *T in template by the given leaves, in order.
func fillTemplate[T any](op string, template any, leaves []*T) (any, error) {
	return nesting.Map(op, template, func(_ string, x any) (any, error) {
		if empty, ok := x.(*T); ok && empty == nil {
			x, leaves = leaves[0], leaves[1:]
		}
		return x, nil
	})
}

// flatStep converts a step with nested arguments and results to a step with flat lists. Its
// arguments are the tensors of template, and its results are the nodes in the result.
func (f *Function) flatStep(template []any) strategy.StepFunc {
	return func(rc *strategy.ReplicaContext, in []*graph.Node) []*graph.Node {
		args, err := fillTemplate(f.opts.Name, template, in)
		if err != nil {
			panic(err)
		}
		var nodes []*graph.Node
		structure, err := nesting.MapAt(f.opts.Name, "result", f.step(rc, args.([]any)),
			func(path string, x any) (any, error) {
				node, ok := x.(*graph.Node)
				switch {
				case !ok:
					return x, f.checkResultLeaf(path, x)
				case node == nil:
					return nil, fault.New(errkind.TypeError, f.opts.Name, "return a node, or nil of no type",
						"%s is a nil node", path)
				case node.Graph() != rc.Graph():
					return nil, fault.New(errkind.TypeError, f.opts.Name, "return nodes of this trace",
						"%s is a node of another graph", path)
				}
				nodes = append(nodes, node)
				return (*strategy.PerReplica)(nil), nil
			})
		if err != nil {
			panic(err)
		}
		engine.Internal(rc).State().Structure = structure
		return nodes
	}
}

// checkResultLeaf returns an error if a step returns a value on the devices, or an object that
// contains nodes but is not a nest.
func (f *Function) checkResultLeaf(path string, x any) error {
	switch x.(type) {
	case strategy.Value, componentLeaf:
		return fault.New(errkind.TypeError, f.opts.Name, "pass it as an argument and return its node",
			"%s is a %T, which is no result of the step", path, x)
	}
	v, pointsToNest := reflect.ValueOf(x), false
	if v.Kind() == reflect.Pointer { // the target may be in use elsewhere, so only its type is checked
		v = reflect.Zero(v.Type().Elem())
		pointsToNest = nesting.IsNest(v.Type())
	}
	if pointsToNest || containsType(v, 0, func(t reflect.Type) bool { return t == reflect.TypeFor[*graph.Node]() }) {
		return fault.New(errkind.TypeError, f.opts.Name, anyMembers,
			"%s is a %T: it is no nest, and may have nodes in it", path, x)
	}
	return nil
}
