package eager

import (
	"context"
	"fmt"

	"github.com/gomlx/gomlx/core/graph"

	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/strategy/internal/assign"
	"github.com/tpustrategy/tpustrategy/strategy/internal/fault"
	"github.com/tpustrategy/tpustrategy/strategy/internal/mode"
	"github.com/tpustrategy/tpustrategy/strategy/internal/nesting"
)

// trace is a merge call of a compiled step, in which calls build the step's graph. Methods without
// an error panic with theirs, as all that builds graph does.
type trace struct {
	*MergeContext
	// component is set in the function of an update, which writes components and not variables.
	component bool
}

// merging returns the merge call that ctx belongs to, or nil.
func merging(ctx context.Context, s *strategy.TPUStrategy, op string) (*trace, error) {
	code, err := inner(s).MergeCall(ctx, op)
	if code == nil {
		return nil, err
	}
	m, _ := mode.Of(ctx)
	_, component := m.Code.(*componentCode)
	return &trace{MergeContext: code.(mergeCode).MergeContext, component: component}, nil
}

// value returns what a call was given as a value of all replicas.
func (t *trace) value(op string, x any) *MergeValue {
	m, _ := t.operand(op, x, nil)
	return m
}

// of returns a node of the step as a value of all replicas.
func (t *trace) of(node *graph.Node) *MergeValue {
	return t.Map(func([]*graph.Node) *graph.Node { return node })
}

// annotated returns a value that is split over the logical devices as a says.
func (t *trace) annotated(m *MergeValue, a logical.Annotation) *MergeValue {
	return t.merged(logical.Apply(m.Node(), a), m.Mirrored())
}

// first returns replica 0's tensor for all.
func (t *trace) first(m *MergeValue) *MergeValue {
	if m.Mirrored() {
		return m
	}
	return t.merged(t.step.First(m.Node()), true)
}

// read returns the variable in the replica, or across replicas.
func (t *trace) read(v *strategy.Variable, across bool) *graph.Node {
	if across {
		return t.MergeContext.Read(v).Node()
	}
	return t.rc.Read(v)
}

// mapLeaves replaces the leaves of a nest by what f makes of their values. A host value, x, is one
// value, and not one for each replica.
func (t *trace) mapLeaves(call string, nest any, f func(m *MergeValue, x any, host bool) any) (any, error) {
	return nesting.Map(call, nest, func(_ string, x any) (any, error) {
		return fault.Traced(func() any {
			m, host := t.operand(call, x, nil)
			return f(m, x, host)
		})
	})
}

// reduceNest reduces the leaves of a nest over the replicas.
func (t *trace) reduceNest(op strategy.ReduceOp, call string, nest any, axes ...int) (any, error) {
	return t.mapLeaves(call, nest, func(m *MergeValue, x any, host bool) any {
		switch v, _ := x.(*strategy.Variable); {
		case len(axes) > 0:
		case host:
			if err := oneValue(call, op, t.Strategy(), x); err != nil {
				panic(err)
			}
			return x
		case v != nil && v.LocalWrites() && op == strategy.Mean:
			return t.Read(v)
		}
		return t.Reduce(op, m, axes...)
	})
}

// gatherNest gathers the leaves of a nest.
func (t *trace) gatherNest(nest any, axis int) (any, error) {
	return t.mapLeaves("gather", nest, func(m *MergeValue, x any, host bool) any {
		if host {
			return x
		}
		return t.Gather(m, axis)
	})
}

// write writes a variable: all components, or in an update the component, which stands for all.
func (t *trace) write(w assign.Op, v *strategy.Variable, x any) error {
	if !t.component {
		return assignAcross(t.Context(), w, v, x)
	}
	_, err := fault.Traced(func() any {
		op := fmt.Sprintf("%s %q", w.Name, v.Path())
		m, _ := t.operand(op, x, v)
		if !m.Mirrored() && !componentsVary(v) {
			panic(fault.Unequal(op))
		}
		return t.step.Set(op, v, m.Node(), w.Apply)
	})
	return err
}
