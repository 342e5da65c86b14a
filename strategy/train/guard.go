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
	"github.com/tpustrategy/tpustrategy/internal/engine/saved"
	"github.com/tpustrategy/tpustrategy/lowering/spmd"
	"github.com/tpustrategy/tpustrategy/strategy"
)

// guard makes a training step look for numbers that are not finite.
type guard struct {
	mode NonFinite
	path string // of the variable that counts

	mu    sync.Mutex
	names []string // of the gradients
}

// newGuard is nil for steps that are taken always.
func newGuard(mode NonFinite, name string) *guard {
	if mode == Apply || !mode.known() {
		return nil
	}
	return &guard{mode: mode, path: saved.Counter(name)}
}

// Saved says in a step's file what the guard is.
func (g *guard) Saved() saved.Guard {
	g.mu.Lock()
	defer g.mu.Unlock()
	return saved.Guard{Mode: int(g.mode), Gradients: g.names}
}

// Launched is the error of a step that stopped.
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

// decide is the stage that decides whether the step is taken, and counts.
func (g *guard) decide(p *pass) {
	g.mu.Lock()
	g.names = p.trained
	g.mu.Unlock()
	in := p.rc.Graph()
	what, _, past := p.nonFinite()
	all := graph.Equal(what, past)

	v := p.rc.Scope().Store().VariableWithValue(g.path, make([]int64, countElements)).SetTrainable(false)
	old := v.NodeValue(in)
	zero := number(in, 0)
	runs := graph.Equal(zero, zero)
	if g.mode == Stop {
		runs = graph.Equal(element(old, countLast), zero)
	}
	skipped := graph.LogicalAnd(runs, graph.LogicalNot(all))
	if p.overflow != nil { // the scale's, not the model's
		skipped = graph.LogicalAnd(skipped, graph.LogicalNot(p.overflow.scaled))
	}
	steps := graph.Add(element(old, countSteps), oneIf(runs))
	v.SetNodeValue(graph.Stack([]*graph.Node{
		steps, graph.Add(element(old, countSkipped), oneIf(skipped)),
		graph.Where(skipped, steps, element(old, countLast)), graph.Where(skipped, what, element(old, countWhat)),
	}, 0))
	p.common.Taken, p.common.Counters = graph.LogicalAnd(runs, all), append(p.overflow.count(p, runs), v)
}

// nonFinite are the numbers of the first thing that is not finite, and of the first gradient: the
// loss is 0, the gradients count from 1, their norm follows if it was taken, and past is one past
// the last. All replicas have the same.
func (p *pass) nonFinite() (what, gradient, past *graph.Node) {
	in := p.rc.Graph()
	past = number(in, len(p.gradients)+1)
	if p.norm != nil {
		past = number(in, len(p.gradients)+2)
	}
	if p.what == nil {
		index := func(i int, x *graph.Node) *graph.Node { return graph.Where(finite(x), past, number(in, i)) }
		var first []*graph.Node
		for i, x := range p.gradients {
			first = append(first, index(i+1, x))
		}
		p.gradient = graph.ReduceAllMin(graph.Stack(first, 0))
		if p.inParts() { // the replicas agree on what is wrong
			// TPUs take no minimum of 64 bits over replicas.
			p.gradient = graph.ConvertDType(spmd.AllReduce(graph.ConvertDType(p.gradient, dtypes.Int32), spmd.Min), dtypes.Int64)
		}
		if p.norm != nil { // of gradients that are finite it may not be
			p.gradient = graph.Min(p.gradient, index(len(p.gradients)+1, p.norm))
		}
		p.what = graph.Min(index(0, p.meanLoss()), p.gradient)
	}
	return p.what, p.gradient, past
}

// number is a constant. GoMLX's [graph.Scalar] shares the node of a number between branches of a
// graph, one of which has no use for it.
func number(in *graph.Graph, n int) *graph.Node {
	return graph.Const(in, shapes.CastAsDType(n, dtypes.Int64))
}

// element is one of a vector, a scalar.
func element(x *graph.Node, i int) *graph.Node {
	return graph.Reshape(graph.Slice(x, graph.AxisElem(i)))
}

// oneIf is what a condition counts: 1 or 0.
func oneIf(condition *graph.Node) *graph.Node { return graph.ConvertDType(condition, dtypes.Int64) }

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

// read reads what was counted. It waits for the steps under way.
func (g *guard) read(ctx context.Context, f *strategy.Function) (NonFiniteSteps, error) {
	m := innerFunction(f)
	v, ok := m.Lookup(g.path)
	if !ok {
		return NonFiniteSteps{}, nil // no step was traced
	}
	counts, err := readHere[int64](ctx, m, v)
	if err != nil {
		return NonFiniteSteps{}, err
	}
	n := NonFiniteSteps{Steps: counts[countSteps], Skipped: counts[countSkipped], Last: counts[countLast]}
	if n.Last > 0 {
		n.What, n.Stopped = g.what(int(counts[countWhat])), g.mode == Stop
	}
	return n, nil
}

// readHere copies what a device of this process holds of a variable: its elements.
func readHere[T gotype.Supported](ctx context.Context, m function, v *strategy.Variable) ([]T, error) {
	value, err := m.ReadHere(ctx, v)
	if err != nil {
		return nil, err
	}
	all, err := tensors.CopyFlatData[T](value)
	if err != nil {
		return nil, &errkind.Fault{Op: "train: read", Subject: fmt.Sprintf("variable %q", v.Path()), Err: err}
	}
	return all, nil
}

// what names the loss or a gradient by its number in the counting variable.
func (g *guard) what(i int) string {
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
