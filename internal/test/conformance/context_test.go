package conformance

import (
	"context"
	"errors"
	"strings"

	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/core/tensors"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/strategy/eager"
)

// report is what a context says of itself.
func (v *env) report(ctx context.Context) map[string]any {
	s, ok := eager.FromContext(ctx)
	name := "default"
	if s == v.s {
		name = "S2"
	}
	m := map[string]any{
		"strategy": name, "has_strategy": ok,
		"in_cross_replica": eager.InCrossReplicaContext(ctx), "replica_context": eager.InReplicaContext(ctx),
	}
	if id, ok := eager.UpdateReplicaID(ctx); ok {
		m["update_replica_id"] = float64(id)
	}
	return m
}

func contextCase(c *caseRun, g golden, v *env) {
	ctx := v.ctx
	name := g.Name
	inRun := func(fn func(ctx context.Context) error) any {
		_, err := v.e.CallForEachReplica(ctx, func(rc *eager.ReplicaContext, _ ...any) (any, error) { return nil, fn(rc.Context()) })
		if err == nil {
			return nil
		}
		return failed(err)
	}
	noop := func(*eager.ReplicaContext, ...any) (any, error) { return nil, nil }
	switch {
	case strings.HasPrefix(name, "what each context reports"):
		got := map[string]any{"outside": v.report(ctx)}
		scope := v.scope(c)
		got["scope"] = v.report(scope)
		nested, err := eager.Of(v.s).Scope(scope)
		require.NoError(c, err)
		got["scope nested in the same scope"] = v.report(nested)
		got["after nested scope exit"] = v.report(scope)
		got["after scope exit"] = v.report(ctx)
		w := v.variable(c, float32(1), strategy.VariableOptions{})
		_, err = v.e.CallForEachReplica(scope, func(rc *eager.ReplicaContext, _ ...any) (any, error) {
			got["run"] = v.report(rc.Context())
			_, err := rc.MergeCall(func(ctx context.Context, _ ...any) (any, error) {
				got["merge_call"] = v.report(ctx)
				s, _ := eager.FromContext(ctx)
				got["merge_call_arg_is_strategy"] = s == v.s
				return nil, nil
			})
			return nil, err
		})
		require.NoError(c, err)
		report := func(k string) eager.UpdateFunc {
			return func(u *eager.UpdateContext, _ ...any) (any, error) {
				got[k] = v.report(u.Context())
				return nil, nil
			}
		}
		_, err = v.e.Update(scope, w, report("update"))
		require.NoError(c, err)
		_, err = v.e.UpdateNonSlot(scope, v.e.NonSlotDevices(), report("update_non_slot"))
		require.NoError(c, err)
		if m := got["update_non_slot"].(map[string]any); v.semantics != strategy.TensorFlowMirrored {
			m["update_replica_id"] = nil
		}
		c.check(g.Outputs, got)
	case strings.HasPrefix(name, "with scope()"):
		s, ok := eager.FromContext(v.scope(c))
		c.check(g.Outputs, ok && s == v.s)
	case strings.HasPrefix(name, "nested scope of another"), strings.HasPrefix(name, "default strategy scope() inside"):
		_, err := eager.Of(v.other(c)).Scope(v.scope(c))
		c.check(g.Outputs, failed(err))
	case strings.HasPrefix(name, "scope() inside run"):
		c.check(g.Outputs, inRun(func(ctx context.Context) error { _, err := eager.Of(v.s).Scope(ctx); return err }))
	case strings.HasPrefix(name, "scope() of another strategy inside run"):
		c.check(g.Outputs, inRun(func(ctx context.Context) error { _, err := eager.Of(v.other(c)).Scope(ctx); return err }))
	case strings.HasPrefix(name, "run() inside run() of another"), strings.Contains(name, "another strategy inside run"):
		c.check(g.Outputs, inRun(func(ctx context.Context) error {
			_, err := eager.Of(v.other(c)).CallForEachReplica(ctx, noop)
			return err
		}))
	case strings.HasPrefix(name, "run() inside run()"), strings.HasPrefix(name, "call_for_each_replica inside"):
		c.check(g.Outputs, inRun(func(ctx context.Context) error { _, err := v.e.CallForEachReplica(ctx, noop); return err }))
	case strings.HasPrefix(name, "run() inside the scope of another"):
		other, err := eager.Of(v.other(c)).Scope(ctx)
		require.NoError(c, err)
		_, err = v.e.CallForEachReplica(other, noop)
		c.check(g.Outputs, failed(err))
	case strings.HasPrefix(name, "run() inside merge_call()"):
		c.check(g.Outputs, c.either(v.e.CallForEachReplica(ctx, func(rc *eager.ReplicaContext, _ ...any) (any, error) {
			return rc.MergeCall(func(ctx context.Context, _ ...any) (any, error) {
				return v.e.CallForEachReplica(ctx, func(rc *eager.ReplicaContext, _ ...any) (any, error) {
					return tensors.FromScalar(float32(5 + rc.ReplicaIDInSyncGroup())), nil
				})
			})
		})))
	case strings.HasPrefix(name, "a new thread"), strings.HasPrefix(name, "a new goroutine"):
		v.scope(c) // is a value: nothing but who holds it is inside
		inside := make(chan bool)
		go func() {
			_, ok := eager.FromContext(v.ctx)
			inside <- ok
		}()
		c.check(g.Outputs, <-inside)
	case strings.HasPrefix(name, "experimental_set_strategy S2"):
		scope := v.scope(c)
		s, _ := eager.FromContext(scope)
		four, err := eager.Of(v.other(c)).Scope(ctx)
		require.NoError(c, err)
		o, _ := eager.FromContext(four)
		_, has := eager.FromContext(ctx)
		c.check(g.Outputs, []any{s == v.s, o == v.other(c), has})
	default:
		c.byName(g, v)
	}
}

func mergeCallCase(c *caseRun, g golden, v *env) {
	ctx, name := v.ctx, g.Name
	run := func(fn eager.ReplicaFunc) any { return c.either(v.e.CallForEachReplica(ctx, fn)) }
	nothing := func(context.Context, ...any) (any, error) { return nil, nil }
	sumOf := func(ctx context.Context, args ...any) (any, error) {
		return eager.Of(v.s).Reduce(ctx, strategy.Sum, args[0])
	}
	id := func(rc *eager.ReplicaContext, add int) any {
		return tensors.FromScalar(int32(rc.ReplicaIDInSyncGroup() + add))
	}
	switch {
	case g.Inputs["three"] != nil:
		three := int32(plainValue(g.Inputs["three"]).(int))
		c.check(g.Outputs, run(func(rc *eager.ReplicaContext, _ ...any) (any, error) {
			x, err := rc.Add(tensors.FromScalar(three), id(rc, 0))
			if err != nil {
				return nil, err
			}
			sum, err := rc.MergeCall(sumOf, x)
			if err != nil {
				return nil, err
			}
			return rc.Add(sum, x)
		}))
	case strings.Contains(name, "results are given to each replica"):
		c.check(g.Outputs, run(func(rc *eager.ReplicaContext, _ ...any) (any, error) {
			return rc.MergeCall(func(context.Context, ...any) (any, error) { return plainValue(g.Outputs), nil })
		}))
	case strings.Contains(name, "get_replica_context()"):
		// Across replicas there is no replica context to call it on.
		scope := v.scope(c)
		_, inScope := eager.ReplicaContextOf(scope)
		_, err := v.e.CallForEachReplica(ctx, func(rc *eager.ReplicaContext, _ ...any) (any, error) {
			return rc.MergeCall(func(ctx context.Context, _ ...any) (any, error) {
				_, inMerge := eager.ReplicaContextOf(ctx)
				require.False(c, inMerge)
				return nil, nil
			})
		})
		require.NoError(c, err)
		require.False(c, inScope)
	case strings.Contains(name, "only some") || strings.Contains(name, "different number") || strings.Contains(name, "one replica calls"):
		c.check(g.Outputs, run(func(rc *eager.ReplicaContext, _ ...any) (any, error) {
			if rc.ReplicaIDInSyncGroup() == 0 {
				return rc.MergeCall(nothing)
			}
			return nil, nil
		}))
	case strings.Contains(name, "kept") || strings.Contains(name, "nested") && !strings.Contains(name, "tf.function"):
		c.check(g.Outputs, run(func(rc *eager.ReplicaContext, _ ...any) (any, error) {
			return rc.MergeCall(func(context.Context, ...any) (any, error) { return rc.MergeCall(nothing) })
		}))
	case strings.Contains(name, "passed to run is fine"):
		f := v.s.Function(func(rc *strategy.ReplicaContext, _ []*graph.Node) []*graph.Node {
			x := graph.AddScalar(rc.ReplicaIDInSyncGroup(), 1)
			return eager.MergeCall(rc, func(mc *eager.MergeContext, args ...*eager.MergeValue) []*eager.MergeValue {
				return []*eager.MergeValue{mc.Reduce(strategy.Sum, args[0])}
			}, x)
		}, strategy.FunctionOptions{})
		out, err := f.Run(ctx)
		require.NoError(c, err)
		for _, x := range c.show(out[0]).(distributed).values {
			c.check(g.Outputs, x)
		}
	case strings.Contains(name, "cond") || strings.Contains(name, "control flow") || strings.Contains(name, "while") || strings.Contains(name, "tf.function"):
		f := v.s.Function(func(rc *strategy.ReplicaContext, _ []*graph.Node) []*graph.Node {
			x := rc.ReplicaIDInSyncGroup()
			less := graph.NewClosure(rc.Graph(), func(g *graph.Graph) []*graph.Node {
				return eager.MergeCall(rc, func(_ *eager.MergeContext, args ...*eager.MergeValue) []*eager.MergeValue { return args }, x)
			})
			return graph.If(graph.Const(rc.Graph(), true), less, less)
		}, strategy.FunctionOptions{})
		_, err := f.Run(ctx)
		c.check(g.Outputs, failed(err))
	case strings.Contains(name, "exception") || strings.Contains(name, "raises"):
		mine := errors.New("raised in the merge function")
		_, err := v.e.CallForEachReplica(ctx, func(rc *eager.ReplicaContext, _ ...any) (any, error) {
			return rc.MergeCall(func(context.Context, ...any) (any, error) { return nil, mine })
		})
		require.ErrorIs(c, err, mine, "the user's own error comes through")
	case strings.Contains(name, "two") || strings.Contains(name, "twice"):
		c.check(g.Outputs, run(func(rc *eager.ReplicaContext, _ ...any) (any, error) {
			x, err := rc.MergeCall(sumOf, id(rc, 1))
			if err != nil {
				return nil, err
			}
			return rc.MergeCall(sumOf, x)
		}))
	default:
		c.byName(g, v)
	}
}

func replicaContextCase(c *caseRun, g golden, v *env) {
	// Replica contexts are made by the strategy only; one of another strategy is
	// met as its context.
	other := v.other(c)
	_, err := eager.Of(other).CallForEachReplica(v.ctx, func(rc *eager.ReplicaContext, _ ...any) (any, error) {
		return nil, eager.Of(v.s).Group(rc.Context(), nil)
	})
	require.NoError(c, err)
	_, foreign := eager.Of(other).CallForEachReplica(v.ctx, func(rc *eager.ReplicaContext, _ ...any) (any, error) {
		_, err := v.e.CallForEachReplica(rc.Context(), func(*eager.ReplicaContext, ...any) (any, error) { return nil, nil })
		return nil, err
	})
	c.check(g.Outputs, map[string]any{"foreign_merge": failed(foreign), "foreign_devices": failed(foreign)})
}

func tpuRunCase(c *caseRun, g golden, v *env) {
	switch {
	case strings.Contains(g.Name, "called eagerly"):
		c.unmapped("the type of the step")
	default:
		c.byName(g, v)
	}
}
