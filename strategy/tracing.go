package strategy

import (
	"context"
	"fmt"

	"github.com/gomlx/gomlx/core/graph"

	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/strategy/internal/assign"
	"github.com/tpustrategy/tpustrategy/strategy/internal/fault"
	"github.com/tpustrategy/tpustrategy/strategy/internal/nesting"
)

// A step's code runs once for each signature, while it is traced. What it is to do in each run has
// to be built into its graph: a call that acts at once would act once, and never again. So the
// contexts of a trace carry it, and every call that takes a context either builds graph there or
// refuses.

type tracingKey struct{}

// tracing is the trace that a context belongs to.
type tracing struct {
	rc *ReplicaContext
	// merge is set in a merge call, updating in the function of an update there.
	merge    *MergeContext
	updating bool
}

func tracingOf(ctx context.Context) *tracing {
	t, _ := ctx.Value(tracingKey{}).(*tracing)
	return t
}

func withTracing(ctx context.Context, t *tracing) context.Context {
	return context.WithValue(ctx, tracingKey{}, t)
}

// Tracing reports whether ctx belongs to a compiled step that is being traced: whether it is the
// context of [ReplicaContext.Context] or [MergeContext.Context], or derived from it. Calls that act
// at once, rather than in each run of the step, refuse such a context with a [*ContextError].
func Tracing(ctx context.Context) bool { return tracingOf(ctx) != nil }

// RefuseTracing returns a [*ContextError] if ctx belongs to a compiled step that is being traced.
// Calls that act at once begin with it; instead says what to write in a step.
func RefuseTracing(ctx context.Context, op, instead string) error {
	if !Tracing(ctx) {
		return nil
	}
	return &ContextError{Op: op, Reason: "called in a compiled step, whose code runs once, while it is traced, and not in each run", Hint: instead}
}

// crossTracing returns the trace whose merge call ctx belongs to, if it belongs to one: the call is
// to build graph.
func (s *TPUStrategy) crossTracing(ctx context.Context, op string) (*tracing, error) {
	t := tracingOf(ctx)
	switch {
	case t == nil:
		return nil, nil
	case t.rc.strategy != s:
		return nil, &StrategyError{Op: op, Subject: "the step that is being traced"}
	case t.merge == nil:
		return nil, &ContextError{Op: op, Reason: "called in a replica's code", Hint: "call it inside MergeCall, with the context of the MergeContext"}
	case t.merge.over:
		return nil, t.merge.ended(op)
	}
	return t, nil
}

// merged is a leaf as a value of all replicas. host is set for one that the step's code gave: one
// value, not one for each replica.
func (t *tracing) merged(op string, x any, like *Variable) (m *Merged, host bool) {
	mc := t.merge
	switch x := x.(type) {
	case *Merged:
		if x == nil || x.node == nil || x.node.Graph() != t.rc.graph {
			panic(fault.New(TypeError, op, "give values of this merge call", "a merged value of nothing, or of another step"))
		}
		return x, false
	case *graph.Node:
		if x == nil || x.Graph() != t.rc.graph {
			panic(fault.New(TypeError, op, "give nodes of this step", "no node, or one of another step"))
		}
		return mc.of(x), false
	case *Variable:
		c := t.rc.capture(op, x)
		return &Merged{mc: mc, node: c.now, mirrored: c.borrowed || !x.perReplica()}, false
	case *Component:
		if sortOf(x) == sortComponent && x.variable != nil {
			return &Merged{mc: mc, node: t.rc.component(op, x), mirrored: true}, false
		}
		panic(&ContextError{Op: op, Reason: "given a part of a value, which the step's graph does not hold", Hint: "pass the value to the step as an argument"})
	case Value, *Objects:
		panic(&ContextError{Op: op, Reason: fmt.Sprintf("given a %T, which the step's graph does not hold", x), Hint: "pass it to the step as an argument"})
	}
	if like == nil {
		like = &Variable{shape: []int{1}} // numbers keep their own dtype
	}
	node, _ := t.rc.node(op, like, x)
	return &Merged{mc: mc, node: node, mirrored: true}, true
}

// of is a node of the step as a value of all replicas.
func (mc *MergeContext) of(node *graph.Node) *Merged {
	differs, err := mc.rc.differs([]*graph.Node{node}, true)
	if err != nil {
		panic(err)
	}
	return &Merged{mc: mc, node: node, mirrored: !differs[0]}
}

// ReduceNest reduces the leaves of a nest over the replicas.
func (t *tracing) ReduceNest(op ReduceOp, call string, nest any, axes ...int) (any, error) {
	return fault.Traced(func() any {
		out, err := nesting.Map(call, nest, func(_ string, x any) (any, error) {
			m, host := t.merged(call, x, nil)
			if host && len(axes) == 0 {
				if op == Sum && t.rc.strategy.replicas > 1 && !hostZero(x) {
					return nil, fault.NotDistributed(call)
				}
				return x, nil
			}
			if v, ok := x.(*Variable); ok && v.localWrites && op == Mean && len(axes) == 0 {
				return t.merge.Read(v), nil
			}
			return t.merge.Reduce(op, m, axes...), nil
		})
		if err != nil {
			panic(err)
		}
		return out
	})
}

func hostZero(x any) bool {
	t, err := hostTensor(x)
	return err == nil && isZero(t)
}

// GatherNest gathers the leaves of a nest.
func (t *tracing) GatherNest(nest any, axis int) (any, error) {
	return fault.Traced(func() any {
		out, err := nesting.Map("gather", nest, func(_ string, x any) (any, error) {
			m, host := t.merged("gather", x, nil)
			if host {
				return x, nil
			}
			return t.merge.Gather(m, axis), nil
		})
		if err != nil {
			panic(err)
		}
		return out
	})
}

// The methods that follow are what package eager builds the calls of a merge call from. They panic
// with their errors, as all that builds graph does, unless they return one.

// Value returns a leaf as a value of all replicas.
func (t *tracing) Value(op string, x any) *Merged {
	m, _ := t.merged(op, x, nil)
	return m
}

// Of returns a node of the step as a value of all replicas.
func (t *tracing) Of(node *graph.Node) *Merged { return t.merge.of(node) }

// Node returns a value's node.
func (t *tracing) Node(m *Merged) *graph.Node { return m.node }

// Annotated returns a value that is split over the logical devices as a says.
func (t *tracing) Annotated(m *Merged, a logical.Annotation) *Merged {
	return &Merged{mc: m.mc, node: logical.Apply(m.node, a), mirrored: m.mirrored}
}

// First returns replica 0's tensor for all.
func (t *tracing) First(m *Merged) *Merged {
	if m.mirrored {
		return m
	}
	return &Merged{mc: m.mc, node: t.rc.first(m.node), mirrored: true}
}

// Read returns the variable in the replica, or across replicas.
func (t *tracing) Read(v *Variable, across bool) *graph.Node {
	if across {
		return t.merge.Read(v).node
	}
	return t.rc.capture("Read", v).now
}

// State returns the step's last node and the nodes of its variables: what building graph changes.
func (t *tracing) State() []*graph.Node {
	state := []*graph.Node{t.rc.graph.LastNode()}
	for _, c := range t.rc.captured {
		state = append(state, c.now)
	}
	return state
}

// Parts returns the replicas' parts of a value.
func (t *tracing) Parts(m *Merged) []*Merged { return t.merge.LocalResults(m) }

// Write is a write of a variable in a merge call, or in an update there.
func (t *tracing) Write(w assign.Op, v *Variable, value any) error {
	_, err := fault.Traced(func() *graph.Node {
		op := fmt.Sprintf("%s %q", w.Name, v.path)
		c := t.rc.capture(op, v)
		m, _ := t.merged(op, value, v)
		if !t.updating {
			t.merge.write(w, v, m)
			return c.now
		}
		t.equal(op, v, m)
		return t.rc.set(op, c, m.node, w.Apply)
	})
	return err
}

// equal refuses to write to the components of a mirrored variable what may differ.
func (t *tracing) equal(op string, v *Variable, all ...*Merged) {
	for _, m := range all {
		if !m.mirrored && !v.perReplica() {
			panic(fault.New(ValueError, op, "write one value, or create the variable with LocalWrites", "different values for the components of a mirrored variable"))
		}
	}
}

// Scatter is [Variable.Scatter] in a merge call, or in an update there.
func (t *tracing) Scatter(op ScatterOp, v *Variable, indices, updates any) error {
	_, err := fault.Traced(func() *graph.Node {
		name := fmt.Sprintf("%s %q", op, v.path)
		c := t.rc.capture(name, v)
		if err := v.scatterRule(op, false); err != nil {
			panic(err)
		}
		i, _ := t.merged(name, indices, nil)
		u, _ := t.merged(name, updates, nil)
		t.equal(name, v, i, u)
		t.rc.writesInMain(name)
		return t.rc.scatter(op, c, i.node, u.node)
	})
	return err
}
