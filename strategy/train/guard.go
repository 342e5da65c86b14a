package train

import (
	"context"
	"fmt"
	"sync"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/dtypes/gotype"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/core/tensors"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/internal/engine"
	"github.com/tpustrategy/tpustrategy/internal/engine/savedstep"
	"github.com/tpustrategy/tpustrategy/lowering/spmd"
	"github.com/tpustrategy/tpustrategy/strategy"
)

// guard detects steps with non-finite loss or gradients and counts them.
type guard struct {
	mode NonFinite
	path string // of the variable with the counts

	mu    sync.Mutex
	names []string // variables of the gradients
}

// newGuard returns nil for mode Apply.
func newGuard(mode NonFinite, name string) *guard {
	if mode == Apply || !mode.known() {
		return nil
	}
	return &guard{mode: mode, path: savedstep.GuardPath(name)}
}

// Saved returns the guard's description for a step file.
func (g *guard) Saved() savedstep.Guard {
	g.mu.Lock()
	defer g.mu.Unlock()
	return savedstep.Guard{Mode: int(g.mode), Gradients: g.names}
}

// Launched returns a [*NonFiniteError] if the step stopped.
func (g *guard) Launched(ctx context.Context, f *strategy.Function) error {
	if g.mode != Stop {
		return nil
	}
	n, err := g.read(ctx, f)
	if err != nil || !n.Stopped {
		return err
	}
	return &NonFiniteError{Function: f.Name(), Step: n.Last, What: n.What}
}

// decide is the stage that decides whether the update is applied, and counts the step.
func (g *guard) decide(p *pass) {
	g.mu.Lock()
	g.names = p.trained
	g.mu.Unlock()
	in := p.rc.Graph()
	what, _, past := p.nonFinite()
	all := graph.Equal(what, past)

	v := p.rc.Scope().Store().VariableWithValue(g.path, make([]int64, countElements)).SetTrainable(false)
	old := v.NodeValue(in)
	zero := intConstant(in, 0)
	runs := graph.Equal(zero, zero)
	if g.mode == Stop {
		runs = graph.Equal(element(old, countLast), zero)
	}
	skipped := graph.LogicalAnd(runs, graph.LogicalNot(all))
	if p.overflow != nil { // not counted: the loss scale was too large
		skipped = graph.LogicalAnd(skipped, graph.LogicalNot(p.overflow.scaled))
	}
	steps := graph.Add(element(old, countSteps), oneIf(runs))
	v.SetNodeValue(graph.Stack([]*graph.Node{
		steps, graph.Add(element(old, countSkipped), oneIf(skipped)),
		graph.Where(skipped, steps, element(old, countLast)), graph.Where(skipped, what, element(old, countWhat)),
	}, 0))
	p.common.Applied, p.common.Counters = graph.LogicalAnd(runs, all), append(p.overflow.countOverflow(p, runs), v)
}

// nonFinite returns the indices of the first non-finite value and of the first non-finite gradient.
// Index 0 is the loss, 1 the first gradient, and the index after the last gradient is the gradient
// norm, if it is computed. past is one more than the last index and means that all values are
// finite. The results are equal on all replicas.
func (p *pass) nonFinite() (what, gradient, past *graph.Node) {
	in := p.rc.Graph()
	past = intConstant(in, len(p.gradients)+1)
	if p.norm != nil {
		past = intConstant(in, len(p.gradients)+2)
	}
	if p.what == nil {
		index := func(i int, x *graph.Node) *graph.Node { return graph.Where(isFinite(x), past, intConstant(in, i)) }
		var first []*graph.Node
		for i, x := range p.gradients {
			first = append(first, index(i+1, x))
		}
		p.gradient = graph.ReduceAllMin(graph.Stack(first, 0))
		if p.inParts() { // make the result equal on all replicas
			// TPUs do not support an all-reduce minimum of 64-bit integers.
			p.gradient = graph.ConvertDType(spmd.AllReduce(graph.ConvertDType(p.gradient, dtypes.Int32), spmd.Min),
				dtypes.Int64)
		}
		if p.norm != nil { // the norm of finite gradients can overflow
			p.gradient = graph.Min(p.gradient, index(len(p.gradients)+1, p.norm))
		}
		p.what = graph.Min(index(0, p.meanLoss()), p.gradient)
	}
	return p.what, p.gradient, past
}

// intConstant returns an int64 constant. [graph.Scalar] would share one node between branches of a
// graph, also with a branch that does not use it.
func intConstant(in *graph.Graph, n int) *graph.Node {
	return graph.Const(in, shapes.CastAsDType(n, dtypes.Int64))
}

func element(x *graph.Node, i int) *graph.Node {
	return graph.Reshape(graph.Slice(x, graph.AxisElem(i)))
}

// oneIf converts a condition to 1 or 0.
func oneIf(condition *graph.Node) *graph.Node { return graph.ConvertDType(condition, dtypes.Int64) }

// isFinite reports whether all elements of x are finite.
func isFinite(x *graph.Node) *graph.Node {
	if x.DType().IsComplex() {
		return graph.LogicalAnd(isFinite(graph.Real(x)), isFinite(graph.Imag(x)))
	}
	if x = graph.IsFinite(x); x.IsScalar() {
		return x
	}
	return graph.LogicalAll(x)
}

// read returns the counts. It waits for running steps.
func (g *guard) read(ctx context.Context, f *strategy.Function) (NonFiniteSteps, error) {
	v, ok := engine.Internal(f).LookupVariable(g.path)
	if !ok {
		return NonFiniteSteps{}, nil // no step was traced
	}
	counts, err := readLocal[int64](ctx, f, v)
	if err != nil {
		return NonFiniteSteps{}, err
	}
	n := NonFiniteSteps{Steps: counts[countSteps], Skipped: counts[countSkipped], Last: counts[countLast]}
	if n.Last > 0 {
		n.What, n.Stopped = g.describeSource(int(counts[countWhat])), g.mode == Stop
	}
	return n, nil
}

// readLocal returns the elements of a variable on one device of this process.
func readLocal[T gotype.Supported](ctx context.Context, f *strategy.Function, v *strategy.Variable) ([]T, error) {
	value, err := engine.Internal(f).ReadLocalVariable(ctx, v)
	if err != nil {
		return nil, err
	}
	all, err := tensors.CopyFlatData[T](value)
	if err != nil {
		return nil, &errkind.Fault{Op: "train: read", Subject: fmt.Sprintf("variable %q", v.Path()), Err: err}
	}
	return all, nil
}

// describeSource returns the name of the loss or gradient with index i of nonFinite.
func (g *guard) describeSource(i int) string {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case i < 1 || i > len(g.names)+1:
		return "the loss"
	case i == len(g.names)+1:
		return "the norm of the gradients"
	}
	return fmt.Sprintf("the gradient of %q", g.names[i-1])
}
