package strategy_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/gomlx/gomlx/core/graph"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/internal/test/strategytest"
	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/strategy/eager"
)

// A nil pointer in an interface is not a nil interface, but the strategy treats it as no value.
func TestNilPointersAreErrors(t *testing.T) {
	ctx := context.Background()
	s := strategytest.New(t, 2, 1)
	e := eager.Of(s)
	v, err := s.NewVariable(ctx, float32(1), strategy.VariableOptions{Aggregation: strategy.AggregateMean})
	require.NoError(t, err)
	whole, err := s.Mirror(ctx, float32(2), logical.Annotation{})
	require.NoError(t, err)
	double := s.Function(func(_ *strategy.ReplicaContext, in []*graph.Node) []*graph.Node {
		return []*graph.Node{graph.Add(in[0], in[0])}
	}, strategy.FunctionOptions{})
	nils := []any{
		(*strategy.PerReplica)(nil), (*strategy.Mirrored)(nil), (*strategy.StackedBatches)(nil), (*strategy.Variable)(nil),
		eager.Component{}, (*strategy.Objects)(nil),
	}
	replicas := func(f func(rc *eager.ReplicaContext) error) error {
		_, err := e.CallForEachReplica(ctx, func(rc *eager.ReplicaContext, _ ...any) (any, error) { return nil, f(rc) })
		return err
	}
	update := func(f func(u *eager.UpdateContext) error) error {
		_, err := e.Update(ctx, v, func(u *eager.UpdateContext, _ ...any) (any, error) { return nil, f(u) })
		return err
	}
	for _, x := range nils {
		variable, _ := x.(*strategy.Variable)
		value, _ := x.(strategy.Value)
		for name, f := range map[string]func() error{
			"reduce nest":   func() error { return strategytest.Err(eager.Of(s).Reduce(ctx, strategy.Sum, []any{x})) },
			"gather nest":   func() error { return strategytest.Err(eager.Of(s).Gather(ctx, []any{x}, 0)) },
			"reduce to":     func() error { return strategytest.Err(e.ReduceTo(ctx, strategy.Sum, x, eager.To(v))) },
			"broadcast to":  func() error { return strategytest.Err(e.BroadcastTo(ctx, x, eager.To(v))) },
			"destination":   func() error { return strategytest.Err(e.ReduceTo(ctx, strategy.Sum, whole, eager.To(variable))) },
			"local results": func() error { return strategytest.Err(eager.Of(s).LocalResultsOf([]any{x})) },
			"local result":  func() error { return strategytest.Err(eager.Of(s).LocalResultsOf(x)) },
			"group":         func() error { return eager.Of(s).Group(ctx, []any{x}) },
			"regroup":       func() error { return strategytest.Err(eager.Of(s).Regroup(ctx, []any{x, x})) },
			"select":        func() error { return strategytest.Err(eager.Of(s).SelectReplica(0, []any{x})) },
			"call argument": func() error {
				return strategytest.Err(e.CallForEachReplica(ctx, func(*eager.ReplicaContext, ...any) (any, error) {
					return nil,
						nil
				}, x))
			},
			"call result": func() error {
				return strategytest.Err(e.CallForEachReplica(ctx, func(*eager.ReplicaContext, ...any) (any, error) {
					return x,
						nil
				}))
			},
			"run":         func() error { return strategytest.Err(double.Run(ctx, x)) },
			"mirror":      func() error { return strategytest.Err(s.Mirror(ctx, x, logical.Annotation{})) },
			"per replica": func() error { return strategytest.Err(s.PerReplica(ctx, []any{x, x}, logical.Annotation{})) },
			"stack":       func() error { return strategytest.Err(s.StackBatches(ctx, []any{x}, logical.Annotation{})) },
			"ragged":      func() error { return strategytest.Err(s.PerReplica(ctx, []any{x, x}, logical.Annotation{})) },
			"new variable": func() error {
				return strategytest.Err(s.NewVariable(ctx, x,
					strategy.VariableOptions{Name: "made"}))
			},
			"assign":  func() error { return v.Assign(ctx, x) },
			"scatter": func() error { return v.Scatter(ctx, strategy.ScatterAdd, x, x) },
			"eager assign": func() error {
				return replicas(func(rc *eager.ReplicaContext) error { return strategytest.Err(rc.Assign(v, x)) })
			},
			"eager add": func() error {
				return replicas(func(rc *eager.ReplicaContext) error { return strategytest.Err(rc.Add(x, 1)) })
			},
			"eager reduce": func() error {
				return replicas(func(rc *eager.ReplicaContext) error { return strategytest.Err(rc.AllReduce(strategy.Sum, x)) })
			},
			"eager gather": func() error {
				return replicas(func(rc *eager.ReplicaContext) error { return strategytest.Err(rc.AllGather(x, 0)) })
			},
			"eager call": func() error {
				return replicas(func(rc *eager.ReplicaContext) error { return strategytest.Err(rc.Call(double, x)) })
			},
			"eager read": func() error {
				return replicas(func(rc *eager.ReplicaContext) error { return strategytest.Err(rc.Read(variable)) })
			},
			"eager scatter": func() error {
				return replicas(func(rc *eager.ReplicaContext) error {
					return strategytest.Err(rc.Scatter(strategy.ScatterAdd, v, x, x))
				})
			},
			"eager update": func() error {
				return replicas(func(rc *eager.ReplicaContext) error { return strategytest.Err(rc.Update(variable, nil)) })
			},
			"merge argument": func() error {
				return replicas(func(rc *eager.ReplicaContext) error {
					return strategytest.Err(rc.MergeCall(func(context.Context, ...any) (any, error) { return nil, nil }, x))
				})
			},
			"merge result": func() error {
				return replicas(func(rc *eager.ReplicaContext) error {
					return strategytest.Err(rc.MergeCall(func(context.Context, ...any) (any, error) { return x, nil }))
				})
			},
			"update": func() error { return strategytest.Err(e.Update(ctx, variable, nil)) },
			"update argument": func() error {
				return strategytest.Err(e.Update(ctx, v, func(*eager.UpdateContext, ...any) (any, error) { return nil, nil }, x))
			},
			"update assign": func() error {
				return update(func(u *eager.UpdateContext) error { return strategytest.Err(u.Assign(x)) })
			},
			"update scatter": func() error {
				return update(func(u *eager.UpdateContext) error { return strategytest.Err(u.Scatter(strategy.ScatterAdd, x, x)) })
			},
			"update result": func() error {
				return strategytest.Err(e.Update(ctx, v, func(*eager.UpdateContext, ...any) (any, error) { return x, nil }))
			},
			"container":     func() error { e.ValueContainer(x); return nil },
			"read variable": func() error { return strategytest.Err(e.ReadVar(ctx, variable)) },
			"created":       func() error { e.VariableCreatedInScope(variable); return nil },
			"colocate":      func() error { return strategytest.Err(e.ColocateVarsWith(ctx, variable)) },
			"component":     func() error { return strategytest.Err(eager.Of(s).Component(value, 0)) },
			"reduce":        func() error { return strategytest.Err(s.Reduce(ctx, strategy.Sum, value)) },
			"gather":        func() error { return strategytest.Err(s.Gather(ctx, value, 0)) },
			"values":        func() error { return strategytest.Err(s.LocalResults(ctx, value)) },
		} {
			t.Run(fmt.Sprintf("%T/%s", x, name), func(t *testing.T) {
				require.NotPanics(t, func() { err = f() })
				var panicked *errkind.PanicError
				assert.NotErrorAs(t, err, &panicked)
			})
		}
	}
	_, err = double.Run(ctx, whole)
	assert.NoError(t, err, "the strategy stays usable")
}
