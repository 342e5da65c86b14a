package strategy

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/core/tensors"
	"github.com/gomlx/gomlx/ml/model"

	"github.com/tpustrategy/tpustrategy/strategy/internal/fault"
)

// NonFinite says what a training step does when its loss or a gradient is not finite: a
// NaN or an infinity. The step decides in its program, from the loss and the gradients as
// all replicas average them, so that all replicas and hosts decide alike. A step that
// is not taken leaves all variables as they were: the model's, the optimizer's, averages
// of layers, the state of random numbers and the variables of the scope that the step
// writes.
type NonFinite int

const (
	// NonFiniteTaken takes the step. Nothing is looked for, and it costs nothing.
	NonFiniteTaken NonFinite = iota
	// NonFiniteSkip does not take the step, and counts it: see [TrainStep.NonFinite].
	NonFiniteSkip
	// NonFiniteStop does not take the step, nor any after it, and Run returns a
	// [*NonFiniteError]. Each Run waits for its step to know; a loop of steps waits once.
	NonFiniteStop
)

// String returns "taken", "skip" or "stop".
func (n NonFinite) String() string {
	switch n {
	case NonFiniteTaken:
		return "taken"
	case NonFiniteSkip:
		return "skip"
	case NonFiniteStop:
		return "stop"
	}
	return fmt.Sprintf("NonFinite(%d)", int(n))
}

// NonFiniteSteps is what a training step counted since its state was new, or since
// [TrainStep.ResetNonFinite].
type NonFiniteSteps struct {
	// Steps are the steps that ran, Skipped those of them that were not taken. Steps
	// that came after a stop are in neither.
	Steps, Skipped int64
	// Last is the number of the last step that was not taken, counted from 1, and 0 if
	// all were. What says what was not finite in it: "the loss", or "the gradient of" a
	// variable, the first in the order of the store.
	Last int64
	What string
	// Stopped says that a step stopped the training.
	Stopped bool
}

// NonFiniteError is that a step whose loss or gradients are not finite stopped the
// training. The variables are those before that step, and stay so until
// [TrainStep.ResetNonFinite].
type NonFiniteError struct {
	// Function is the step's name, Step its number, counted from 1.
	Function string
	Step     int64
	// What was not finite: "the loss", or "the gradient of" a variable.
	What string
}

func (e *NonFiniteError) Error() string {
	return fmt.Sprintf("strategy: %s: step %d was not taken, as %s is not finite; the variables are those before it, call ResetNonFinite to go on",
		e.Function, e.Step, e.What)
}

// Kind is InvalidArgumentError, that of TensorFlow's check_numerics.
func (e *NonFiniteError) Kind() Kind { return InvalidArgumentError }

// guard makes a training step look for numbers that are not finite.
type guard struct {
	mode NonFinite
	path string // of the variable that counts

	mu    sync.Mutex
	names []string // of the gradients
}

// header says in a step's file what the guard is.
func (g *guard) header() (NonFinite, []string) {
	if g == nil {
		return NonFiniteTaken, nil
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.mode, g.names
}

// guard is that of a step from a file.
func (h stepHeader) guard() *guard {
	g := newGuard(h.NonFinite, h.Step)
	if g != nil {
		g.names = h.Gradients
	}
	return g
}

// provide makes the counting variable in a store that lacks it: a checkpoint of steps
// that did not count has none.
func (g *guard) provide(store *model.Store) error {
	if g == nil || store == nil || store.GetVariable(g.path) != nil {
		return nil
	}
	v, err := store.CreateVariable(g.path, tensors.FromValue(make([]int64, countElements)))
	if err == nil {
		v.SetTrainable(false)
	}
	return err
}

// The counting variable's elements.
const (
	countSteps = iota
	countSkipped
	countLast
	countWhat
	countElements
)

// newGuard is nil for steps that are taken always.
func newGuard(mode NonFinite, name string) *guard {
	if mode == NonFiniteTaken {
		return nil
	}
	return &guard{mode: mode, path: model.JoinPath("/non_finite", name)}
}

// build adds the decision to a step's graph.
func (g *guard) build(rc *ReplicaContext, loss *graph.Node, gradients []*graph.Node) {
	g.mu.Lock()
	g.names = rc.trainedNames()
	g.mu.Unlock()
	in := rc.graph
	none := rc.constant(dtypes.Int64, float64(len(gradients)+1))
	first := []*graph.Node{}
	for i, x := range append([]*graph.Node{loss}, gradients...) {
		first = append(first, graph.Where(finite(x), none, rc.constant(dtypes.Int64, float64(i))))
	}
	what := graph.ReduceAllMin(graph.Stack(first, 0))
	all := graph.Equal(what, none)

	store := rc.scope.Store()
	v := store.VariableWithValue(g.path, make([]int64, countElements)).SetTrainable(false)
	old := v.NodeValue(in)
	was := func(i int) *graph.Node { return graph.Reshape(graph.Slice(old, graph.AxisElem(i))) }
	zero := rc.constant(dtypes.Int64, 0)
	runs := graph.Equal(zero, zero)
	if g.mode == NonFiniteStop {
		runs = graph.Equal(was(countLast), zero)
	}
	one := func(condition *graph.Node) *graph.Node { return graph.ConvertDType(condition, dtypes.Int64) }
	skipped := graph.LogicalAnd(runs, graph.LogicalNot(all))
	steps := graph.Add(was(countSteps), one(runs))
	v.SetNodeValue(graph.Stack([]*graph.Node{
		steps, graph.Add(was(countSkipped), one(skipped)),
		graph.Where(skipped, steps, was(countLast)), graph.Where(skipped, what, was(countWhat)),
	}, 0))
	rc.taken, rc.counter = graph.LogicalAnd(runs, all), v
}

// finite is whether all of a tensor is.
func finite(x *graph.Node) *graph.Node {
	if x.DType().IsComplex() {
		return graph.LogicalAnd(finite(graph.Real(x)), finite(graph.Imag(x)))
	}
	if x = graph.IsFinite(x); x.IsScalar() {
		return x
	}
	return graph.LogicalAll(x)
}

// kept is a variable's value after the step: the new one if the step is taken.
func (rc *ReplicaContext) kept(value, old *graph.Node) *graph.Node {
	if rc.taken == nil || value == old {
		return value
	}
	return graph.Where(rc.taken, value, old)
}

// read reads what was counted. It waits for the steps under way.
func (g *guard) read(ctx context.Context, f *Function) (n NonFiniteSteps, err error) {
	v, ok := f.strategy.Variables(f.opts.Store).Lookup(g.path)
	if !ok {
		return n, nil // no step was traced
	}
	d := slices.Index(f.strategy.hosts.local, true)
	value, err := v.LocalPart(ctx, d/f.strategy.perReplica, d%f.strategy.perReplica)
	if err != nil {
		return n, err
	}
	counts, err := tensors.CopyFlatData[int64](value)
	if err != nil {
		return n, err
	}
	n = NonFiniteSteps{Steps: counts[countSteps], Skipped: counts[countSkipped], Last: counts[countLast]}
	if n.Last > 0 {
		n.What = g.what(int(counts[countWhat]))
		n.Stopped = g.mode == NonFiniteStop
	}
	return n, nil
}

func (g *guard) what(i int) string {
	g.mu.Lock()
	defer g.mu.Unlock()
	if i < 1 || i > len(g.names) {
		return "the loss"
	}
	return fmt.Sprintf("the gradient of %q", g.names[i-1])
}

// stopped is the error of a step that stopped.
func (g *guard) stopped(ctx context.Context, f *Function) error {
	if g == nil || g.mode != NonFiniteStop {
		return nil
	}
	n, err := g.read(ctx, f)
	if err != nil || !n.Stopped {
		return err
	}
	return &NonFiniteError{Function: f.opts.Name, Step: n.Last, What: n.What}
}

// NonFinite returns how many steps were not taken because their loss or gradients were
// not finite, and what the last one was. It waits for the steps under way, and copies 32
// bytes. The error is errors.ErrUnsupported for a step whose [TrainOptions] do not ask
// for it. The counts are a variable of the store, "/non_finite/" and the step's name, and
// are saved with it.
func (t *TrainStep) NonFinite(ctx context.Context) (NonFiniteSteps, error) {
	if err := untraced(ctx, "NonFinite", fault.InsteadOfRunning); err != nil {
		return NonFiniteSteps{}, err
	}
	g := t.function.opts.guard
	if g == nil {
		return NonFiniteSteps{}, fmt.Errorf("strategy: %s: counting steps that are not finite: %w; set TrainOptions.NonFinite", t.function.opts.Name, errors.ErrUnsupported)
	}
	return g.read(ctx, t.function)
}

// ResetNonFinite sets the counts to zero. A step that stopped goes on with the next Run.
// With several processes all of them call it.
func (t *TrainStep) ResetNonFinite(ctx context.Context) error {
	if err := untraced(ctx, "ResetNonFinite", fault.InsteadOfRunning); err != nil {
		return err
	}
	g, f := t.function.opts.guard, t.function
	if g == nil {
		return fmt.Errorf("strategy: %s: counting steps that are not finite: %w; set TrainOptions.NonFinite", f.opts.Name, errors.ErrUnsupported)
	}
	v, ok := f.strategy.Variables(f.opts.Store).Lookup(g.path)
	if !ok {
		return nil
	}
	return v.Assign(ctx, make([]int64, countElements))
}
