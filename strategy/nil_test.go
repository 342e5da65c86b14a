package strategy_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/gomlx/gomlx/core/graph"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/strategy/eager"
)

// A nil pointer in an interface is a value to the compiler and none to the strategy.
func TestNilPointersAreErrors(t *testing.T) {
	ctx := context.Background()
	s := newStrategy(t, 2, strategy.Options{Replicas: 2})
	e := eager.Of(s)
	v, err := s.NewVariable(ctx, float32(1), strategy.VariableOptions{Aggregation: strategy.AggregateMean})
	require.NoError(t, err)
	whole, err := s.Mirror(ctx, float32(2), logical.Annotation{})
	require.NoError(t, err)
	double := s.Function(func(_ *strategy.ReplicaContext, in []*graph.Node) []*graph.Node {
		return []*graph.Node{graph.Add(in[0], in[0])}
	}, strategy.FunctionOptions{})
	nils := []any{
		(*strategy.PerReplica)(nil), (*strategy.Mirrored)(nil), (*strategy.Stacked)(nil), (*strategy.Variable)(nil),
		(*strategy.Component)(nil), (*strategy.Objects)(nil),
	}
	replicas := func(f func(rc *eager.ReplicaContext) error) error {
		_, err := e.CallForEachReplica(ctx, func(rc *eager.ReplicaContext, _ ...any) (any, error) { return nil, f(rc) })
		return err
	}
	update := func(f func(u *eager.UpdateContext) error) error {
		_, err := e.Update(ctx, v, func(u *eager.UpdateContext, _ ...any) (any, error) { return nil, f(u) })
		return err
	}
	second := func(_ any, err error) error { return err }
	for _, x := range nils {
		variable, _ := x.(*strategy.Variable)
		value, _ := x.(strategy.Value)
		for name, f := range map[string]func() error{
			"reduce nest":   func() error { return second(eager.Of(s).Reduce(ctx, strategy.Sum, []any{x})) },
			"gather nest":   func() error { return second(eager.Of(s).Gather(ctx, []any{x}, 0)) },
			"reduce to":     func() error { return second(e.ReduceTo(ctx, strategy.Sum, x, eager.To(v))) },
			"broadcast to":  func() error { return second(e.BroadcastTo(ctx, x, eager.To(v))) },
			"destination":   func() error { return second(e.ReduceTo(ctx, strategy.Sum, whole, eager.To(variable))) },
			"local results": func() error { return second(eager.Of(s).LocalResultsOf([]any{x})) },
			"local result":  func() error { return second(eager.Of(s).LocalResultsOf(x)) },
			"group":         func() error { return eager.Of(s).Group(ctx, []any{x}) },
			"regroup":       func() error { return second(eager.Of(s).Regroup(ctx, []any{x, x})) },
			"select":        func() error { return second(eager.Of(s).SelectReplica(0, []any{x})) },
			"call argument": func() error {
				return second(e.CallForEachReplica(ctx, func(*eager.ReplicaContext, ...any) (any, error) { return nil, nil }, x))
			},
			"call result": func() error {
				return second(e.CallForEachReplica(ctx, func(*eager.ReplicaContext, ...any) (any, error) { return x, nil }))
			},
			"run":          func() error { return second(double.Run(ctx, x)) },
			"mirror":       func() error { return second(s.Mirror(ctx, x, logical.Annotation{})) },
			"per replica":  func() error { return second(s.PerReplica(ctx, []any{x, x}, logical.Annotation{})) },
			"stack":        func() error { return second(s.StackBatches(ctx, []any{x}, logical.Annotation{})) },
			"ragged":       func() error { return second(s.PerReplica(ctx, []any{x, x}, logical.Annotation{})) },
			"new variable": func() error { return second(s.NewVariable(ctx, x, strategy.VariableOptions{Name: "made"})) },
			"assign":       func() error { return v.Assign(ctx, x) },
			"scatter":      func() error { return v.Scatter(ctx, strategy.ScatterAdd, x, x) },
			"eager assign": func() error {
				return replicas(func(rc *eager.ReplicaContext) error { return second(rc.Assign(v, x)) })
			},
			"eager add": func() error { return replicas(func(rc *eager.ReplicaContext) error { return second(rc.Add(x, 1)) }) },
			"eager reduce": func() error {
				return replicas(func(rc *eager.ReplicaContext) error { return second(rc.AllReduce(strategy.Sum, x)) })
			},
			"eager gather": func() error {
				return replicas(func(rc *eager.ReplicaContext) error { return second(rc.AllGather(x, 0)) })
			},
			"eager call": func() error {
				return replicas(func(rc *eager.ReplicaContext) error { return second(rc.Call(double, x)) })
			},
			"eager read": func() error {
				return replicas(func(rc *eager.ReplicaContext) error { return second(rc.Read(variable)) })
			},
			"eager scatter": func() error {
				return replicas(func(rc *eager.ReplicaContext) error { return second(rc.Scatter(strategy.ScatterAdd, v, x, x)) })
			},
			"eager update": func() error {
				return replicas(func(rc *eager.ReplicaContext) error { return second(rc.Update(variable, nil)) })
			},
			"merge argument": func() error {
				return replicas(func(rc *eager.ReplicaContext) error {
					return second(rc.MergeCall(func(context.Context, ...any) (any, error) { return nil, nil }, x))
				})
			},
			"merge result": func() error {
				return replicas(func(rc *eager.ReplicaContext) error {
					return second(rc.MergeCall(func(context.Context, ...any) (any, error) { return x, nil }))
				})
			},
			"update": func() error { return second(e.Update(ctx, variable, nil)) },
			"update argument": func() error {
				return second(e.Update(ctx, v, func(*eager.UpdateContext, ...any) (any, error) { return nil, nil }, x))
			},
			"update assign": func() error { return update(func(u *eager.UpdateContext) error { return second(u.Assign(x)) }) },
			"update scatter": func() error {
				return update(func(u *eager.UpdateContext) error { return second(u.Scatter(strategy.ScatterAdd, x, x)) })
			},
			"update result": func() error {
				return second(e.Update(ctx, v, func(*eager.UpdateContext, ...any) (any, error) { return x, nil }))
			},
			"container":     func() error { e.ValueContainer(x); return nil },
			"read variable": func() error { return second(e.ReadVar(ctx, variable)) },
			"created":       func() error { e.VariableCreatedInScope(variable); return nil },
			"colocate":      func() error { return second(e.ColocateVarsWith(ctx, variable)) },
			"component":     func() error { return second(eager.Of(s).Component(value, 0)) },
			"reduce":        func() error { return second(s.Reduce(ctx, strategy.Sum, value)) },
			"gather":        func() error { return second(s.Gather(ctx, value, 0)) },
			"values":        func() error { return second(s.LocalResults(ctx, value)) },
		} {
			t.Run(fmt.Sprintf("%T/%s", x, name), func(t *testing.T) {
				require.NotPanics(t, func() { err = f() })
				var panicked *strategy.PanicError
				assert.NotErrorAs(t, err, &panicked)
			})
		}
	}
	_, err = double.Run(ctx, whole)
	assert.NoError(t, err, "the strategy stays usable")
}
