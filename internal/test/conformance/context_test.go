package conformance

import (
	"context"
	"encoding/json"
	"errors"
	"regexp"
	"slices"
	"strings"

	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/core/tensors"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/strategy/eager"
)

// report returns the properties of a context.
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
		_, err := v.e.CallForEachReplica(ctx, func(rc *eager.ReplicaContext, _ ...any) (any, error) {
			return nil,
				fn(rc.Context())
		})
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
		v.scope(c) // must not change contexts that are not derived from it
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
	case titleHas(name, "then"):
		c.check(g.Outputs, v.inTurn(c, name))
	case isQuery(g.Outputs):
		c.check(g.Outputs, v.queries(c, g))
	default:
		c.byName(g, v)
	}
}

// isQuery reports whether outputs is a bool or a list of bools.
func isQuery(outputs any) bool {
	list, ok := outputs.([]any)
	if !ok {
		list = []any{outputs}
	}
	return len(list) > 0 && !slices.ContainsFunc(list, func(x any) bool { _, ok := x.(bool); return !ok })
}

var queryText = regexp.MustCompile(`\b(get_strategy|has_strategy|in_cross_replica_context|get_replica_context)\b`)

// queries returns the results of the context queries in a title, one bool for each query, in the
// context that the title describes. If the title has no query, it returns whether the strategy's
// scope can be entered in the context.
func (v *env) queries(c *caseRun, g golden) any {
	asked := queryText.FindAllString(g.Name, -1)
	answer := func(ctx context.Context) any {
		s, has := eager.FromContext(ctx)
		_, inReplica := eager.ReplicaContextOf(ctx)
		var all []any
		for _, q := range asked {
			all = append(all, map[string]bool{
				"get_strategy": has && s == v.s, "has_strategy": has, "in_cross_replica_context": eager.InCrossReplicaContext(ctx),
				"get_replica_context": inReplica,
			}[q])
		}
		if len(asked) == 0 {
			_, err := v.e.Scope(ctx)
			all = []any{err == nil}
		}
		if _, list := g.Outputs.([]any); !list && len(all) == 1 {
			return all[0]
		}
		return all
	}
	var got any
	in := func(ctx context.Context) { got = answer(ctx) }
	inReplica := func(merge bool) {
		_, err := v.e.CallForEachReplica(v.ctx, func(rc *eager.ReplicaContext, _ ...any) (any, error) {
			if !merge {
				in(rc.Context())
				return nil, nil
			}
			return rc.MergeCall(func(ctx context.Context, _ ...any) (any, error) { in(ctx); return nil, nil })
		})
		require.NoError(c, err)
	}
	switch title := g.Name; {
	case titleHas(title, "thread", "goroutine", "outside", "after"):
		in(v.ctx)
	case titleHas(title, "merge_call(\\(\\))?", "merge_fn"):
		inReplica(true)
	case titleHas(title, "replica context", "run(\\(\\))?", "call_for_each_replica") &&
		!titleHas(title, "cross-replica context"):
		inReplica(false)
	case titleHas(title, "scope(\\(\\))?", "cross-replica context"):
		in(v.scope(c))
	default:
		c.unmapped("context %q", title)
	}
	return got
}

// inTurn runs the steps that a title separates with "then", one after another: it enters scopes and
// makes calls. It returns whether all steps succeeded, or the first error.
func (v *env) inTurn(c *caseRun, title string) any {
	_, after, ok := strings.Cut(title, ": ")
	if !ok {
		after = title
	}
	for _, part := range strings.Split(after, " then ") {
		e := v.e
		if titleHas(part, "of another", "of S2", "of S4") && strings.HasPrefix(title, "default") ||
			titleHas(part, "another strategy") {
			e = eager.Of(v.other(c))
		}
		var err error
		switch {
		case titleHas(part, "scope\\(\\)", "scope"):
			var in context.Context
			if in, err = e.Scope(v.ctx); err == nil {
				s, ok := eager.FromContext(in)
				require.True(c, ok && s == e.Strategy())
			}
		case titleHas(part, "run\\(\\)", "run", "call_for_each_replica"):
			_, err = e.CallForEachReplica(v.ctx, func(*eager.ReplicaContext, ...any) (any, error) { return nil, nil })
		default:
			c.unmapped("step %q of %q", part, title)
		}
		if err != nil {
			return failed(err)
		}
	}
	return true
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
	case g.in("three") != nil:
		three := int32(plainValue(g.in("three")).(int))
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
		// In a cross-replica context there is no replica context.
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
	case says(g.Outputs, "made a different number of replica_context().merge_call()") || titleHas(name, "only some",
		"different number", "one replica calls", "not all replicas", "only replica \\d", "some replicas"):
		c.check(g.Outputs, run(func(rc *eager.ReplicaContext, _ ...any) (any, error) {
			if rc.ReplicaIDInSyncGroup() == 0 {
				return rc.MergeCall(nothing)
			}
			return nil, nil
		}))
	case says(g.Outputs, "Need to be inside `call_for_each_replica()`", "'NoneType' object has no attribute") ||
		titleHas(name, "kept", "nested", "inside merge_call(\\(\\))?", "inside merge_fn", "in merge_fn", "within merge_fn") &&
			!titleHas(name, "tf\\.function"):
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
	case says(g.Outputs, "`merge_call` called while defining a new graph") || titleHas(name, "tf\\.cond", "cond",
		"control flow", "while", "while_loop", "tf\\.function", "graph"):
		f := v.s.Function(func(rc *strategy.ReplicaContext, _ []*graph.Node) []*graph.Node {
			x := rc.ReplicaIDInSyncGroup()
			less := graph.NewClosure(rc.Graph(), func(g *graph.Graph) []*graph.Node {
				return eager.MergeCall(rc, func(_ *eager.MergeContext,
					args ...*eager.MergeValue) []*eager.MergeValue {
					return args
				}, x)
			})
			return graph.If(graph.Const(rc.Graph(), true), less, less)
		}, strategy.FunctionOptions{})
		_, err := f.Run(ctx)
		c.check(g.Outputs, failed(err))
	case titleHas(name, "exceptions?", "raises?", "fails", "errors? in"):
		mine := errors.New("raised in the merge function")
		_, err := v.e.CallForEachReplica(ctx, func(rc *eager.ReplicaContext, _ ...any) (any, error) {
			return rc.MergeCall(func(context.Context, ...any) (any, error) { return nil, mine })
		})
		require.ErrorIs(c, err, mine, "the user's own error comes through")
	case titleHas(name, "two", "twice", "in a row", "again", "three times"):
		// The second call reduces the result of the first call. A sum counts each replica again,
		// but a mean does not. The recorded result shows which reduction the case used.
		second := strategy.Sum
		if once, ok := g.Outputs.(json.Number); ok {
			if x, _ := once.Float64(); x == float64(v.n*(v.n+1)/2) {
				second = strategy.Mean
			}
		}
		c.check(g.Outputs, run(func(rc *eager.ReplicaContext, _ ...any) (any, error) {
			var one any = id(rc, 1)
			if second == strategy.Mean { // a mean requires floats
				one = tensors.FromScalar(float32(rc.ReplicaIDInSyncGroup() + 1))
			}
			x, err := rc.MergeCall(sumOf, one)
			if err != nil {
				return nil, err
			}
			return rc.MergeCall(func(ctx context.Context, args ...any) (any, error) {
				return eager.Of(v.s).Reduce(ctx, second,
					args[0])
			}, x)
		}))
	case g.Outputs != nil && !isFailure(g.Outputs):
		c.check(g.Outputs, v.mergeFacts(c, g))
	default:
		c.byName(g, v)
	}
}

func isFailure(outputs any) bool { _, ok := errorOf(outputs); return ok }

// mergeFacts makes a merge call whose function returns the recorded result. It returns the outputs
// that the case lists: the result that the replicas receive, the number of calls of the function,
// and the properties of the contexts.
func (v *env) mergeFacts(c *caseRun, g golden) any {
	result, list, named := g.Outputs, []any(nil), g.outputs()
	if _, _, ok := distributedOf(g.Outputs); ok {
		named = nil
	}
	if all, ok := g.Outputs.([]any); ok {
		list = all
	}
	var value any // result of the merge function
	var argument any
	given := false
	for _, k := range []string{"args", "value", "values", "arguments"} {
		if g.has(k) {
			argument, given = g.in(k), true
		}
	}
	if list, ok := argument.([]any); ok && len(list) == v.n {
		argument = map[string]any{"PerReplica": list}
	}
	ran := 0
	facts := map[string]any{}
	call := func() any {
		return c.either(v.e.CallForEachReplica(v.ctx, func(rc *eager.ReplicaContext, _ ...any) (any, error) {
			var x any = tensors.FromScalar(float32(rc.ReplicaIDInSyncGroup()))
			if given {
				x = replicaValue(c, argument, rc.ReplicaIDInSyncGroup())
			}
			return rc.MergeCall(func(ctx context.Context, args ...any) (any, error) {
				ran++
				s, ok := eager.FromContext(ctx)
				_, inReplica := eager.ReplicaContextOf(ctx)
				if given {
					value = args[0] // must be unchanged
				}
				facts["in_cross_replica"], facts["in_cross_replica_context"],
					facts["cross_replica"] = eager.InCrossReplicaContext(ctx), eager.InCrossReplicaContext(ctx),
					eager.InCrossReplicaContext(ctx)
				facts["replica_context"], facts["strategy_is"], facts["strategy"] = inReplica, ok && s == v.s, ok && s == v.s
				return value, nil
			}, x)
		}))
	}
	// of converts the recorded result to the result of the merge function.
	of := func(want any) any {
		if kind, values, ok := distributedOf(want); ok && kind == "PerReplica" {
			return v.replicas(c, values, "")
		}
		if _, ok := want.(map[string]any); ok {
			c.unmapped("result %v of a merge call", want)
		}
		return plainValue(want)
	}
	switch {
	case list != nil: // result, number of calls, whether the context is a cross-replica context
		at := -1
		for i, x := range list {
			if _, isBool := x.(bool); !isBool && at < 0 {
				at = i
			}
		}
		if at < 0 {
			c.unmapped("result %v of a merge call", g.Outputs)
		}
		value = of(list[at])
		got := make([]any, len(list))
		got[at] = call()
		for i := range got {
			if _, isBool := list[i].(bool); isBool {
				got[i] = facts["in_cross_replica"]
			} else if i != at {
				got[i] = float64(ran)
			}
		}
		return got
	case named != nil:
		for _, k := range []string{"result", "returned", "value", "results"} {
			if x, ok := named[k]; ok {
				value = of(x)
			}
		}
		shown := call()
		for _, k := range []string{"result", "returned", "value", "results"} {
			facts[k] = shown
		}
		for _, k := range []string{"calls", "times", "merge_fn_calls", "ran"} {
			facts[k] = float64(ran)
		}
		return facts
	}
	value = of(result)
	return call()
}

func replicaContextCase(c *caseRun, g golden, v *env) {
	// Only the strategy creates replica contexts. The test therefore uses the context of a replica
	// context of another strategy.
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
