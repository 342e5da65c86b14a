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

// guard detects steps whose loss or gradients are not finite, and counts these steps.
type guard struct {
	mode NonFinite
	path string // path of the variable with the counts

	mu    sync.Mutex
	names []string // names of the gradients' variables
}

// newGuard returns the guard of the step with the given name. It returns nil for mode [Apply],
// which does not check for non-finite values.
func newGuard(mode NonFinite, name string) *guard {
	if mode == Apply || !mode.isKnown() {
		return nil
	}
	return &guard{mode: mode, path: savedstep.GuardPath(name)}
}

// Saved describes the guard for a step file.
func (g *guard) Saved() savedstep.Guard {
	g.mu.Lock()
	defer g.mu.Unlock()
	return savedstep.Guard{Mode: int(g.mode), Gradients: g.names}
}

// Launched checks the result of a launch of the step. It returns a [*NonFiniteError] if the step
// stopped.
func (g *guard) Launched(ctx context.Context, f *strategy.Function) error {
	if g.mode != Stop {
		return nil
	}
	n, err := g.readCounts(ctx, f)
	if err != nil || !n.Stopped {
		return err
	}
	return &NonFiniteError{Function: f.Name(), Step: n.Last, What: n.What}
}

// decideUpdate adds to the graph the decision whether the step's update is applied. It also counts
// the step.
func (g *guard) decideUpdate(p *stepBuilder) {
	g.mu.Lock()
	g.names = p.trained
	g.mu.Unlock()
	in := p.rc.Graph()
	what, _, past := p.findNonFinite()
	all := graph.Equal(what, past)

	v := p.rc.Scope().Store().VariableWithValue(g.path, make([]int64, countElements)).SetTrainable(false)
	old := v.NodeValue(in)
	zero := intConstant(in, 0)
	runs := graph.Equal(zero, zero)
	if g.mode == Stop {
		runs = graph.Equal(elementAt(old, countLast), zero)
	}
	skipped := graph.LogicalAnd(runs, graph.LogicalNot(all))
	if p.overflow != nil { // not counted: the loss scale was too large
		skipped = graph.LogicalAnd(skipped, graph.LogicalNot(p.overflow.scaled))
	}
	steps := graph.Add(elementAt(old, countSteps), boolToInt64(runs))
	v.SetNodeValue(graph.Stack([]*graph.Node{
		steps, graph.Add(elementAt(old, countSkipped), boolToInt64(skipped)),
		graph.Where(skipped, steps, elementAt(old, countLast)), graph.Where(skipped, what, elementAt(old, countWhat)),
	}, 0))
	p.common.Applied, p.common.Counters = graph.LogicalAnd(runs, all), append(p.overflow.updateScale(p, runs), v)
}

// findNonFinite returns the index of the first non-finite value of the step, and the index of its
// first non-finite gradient. Index 0 is the loss, and the gradients start at index 1. If the step
// computes the gradient norm, its index follows the last gradient. If no value is non-finite, the
// result is past, the index after all values. The results are int64 scalars and are equal on all
// replicas.
func (p *stepBuilder) findNonFinite() (value, gradient, past *graph.Node) {
	in := p.rc.Graph()
	past = intConstant(in, len(p.gradients)+1)
	if p.norm != nil {
		past = intConstant(in, len(p.gradients)+2)
	}
	if p.firstNonFinite == nil {
		index := func(i int, x *graph.Node) *graph.Node { return graph.Where(isFinite(x), past, intConstant(in, i)) }
		var first []*graph.Node
		for i, x := range p.gradients {
			first = append(first, index(i+1, x))
		}
		p.firstNonFiniteGradient = graph.ReduceAllMin(graph.Stack(first, 0))
		if p.hasShardedGradients() { // make the result equal on all replicas
			// TPUs do not support an all-reduce minimum of 64-bit integers.
			local := graph.ConvertDType(p.firstNonFiniteGradient, dtypes.Int32)
			p.firstNonFiniteGradient = graph.ConvertDType(spmd.AllReduce(local, spmd.Min), dtypes.Int64)
		}
		if p.norm != nil { // the norm of finite gradients can overflow
			p.firstNonFiniteGradient = graph.Min(p.firstNonFiniteGradient, index(len(p.gradients)+1, p.norm))
		}
		p.firstNonFinite = graph.Min(index(0, p.meanLoss()), p.firstNonFiniteGradient)
	}
	return p.firstNonFinite, p.firstNonFiniteGradient, past
}

// intConstant returns a new node for an int64 scalar constant. Other branches of the graph cannot
// share the node.
func intConstant(in *graph.Graph, n int) *graph.Node {
	return graph.Const(in, shapes.CastAsDType(n, dtypes.Int64))
}

func elementAt(x *graph.Node, i int) *graph.Node {
	return graph.Reshape(graph.Slice(x, graph.AxisElem(i)))
}

func boolToInt64(condition *graph.Node) *graph.Node {
	return graph.ConvertDType(condition, dtypes.Int64)
}

// isFinite returns a bool scalar that is true if all elements of x are finite.
func isFinite(x *graph.Node) *graph.Node {
	if x.DType().IsComplex() {
		return graph.LogicalAnd(isFinite(graph.Real(x)), isFinite(graph.Imag(x)))
	}
	if x = graph.IsFinite(x); x.IsScalar() {
		return x
	}
	return graph.LogicalAll(x)
}

// readCounts reads the counts of non-finite steps from a device. It waits for running steps.
func (g *guard) readCounts(ctx context.Context, f *strategy.Function) (NonFiniteSteps, error) {
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

// readLocal copies the elements of a variable from one device of this process.
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

// describeSource describes the value with index i of findNonFinite for an error message.
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
