package conformance

import (
	"context"
	"regexp"
	"strings"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/gomlx/core/graph"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/strategy/eager"
)

var nestedText = regexp.MustCompile(`\bnested merge_call|merge_call (?:inside|in|within) (?:a )?merge_call`)

// merging sets x to a step with a merge call.
func (v *env) merging(c *caseRun, g graphGolden, x *traced) {
	name := g.Name
	is := func(w string) bool { return strings.Contains(name, w) }
	if o, _ := g.Observed.(map[string]any); v.n > 1 && (o["merge_arg_is_per_replica"] == false ||
		o["local_results_len"] == 1.) || is("local_results") || is("gather") {
		c.skip(reasonMergeTrace)
	}
	if g.Error == nil && (is("cond") || is("while") || is("tf.function")) {
		c.skip(reasonMergeBranch)
	}
	if is("reduce") && is("axis=") && g.Error != nil && !is("axis=None") {
		c.skip(reasonMergeAxis)
	}
	if is("python") {
		c.skip(reasonMergeValue)
	}
	if aggregatedText.MatchString(name) || is("update") {
		v.mergedWrite(c, g, x)
		return
	}
	op := reductionIn(name)
	reductions, calls := 0, 1
	if is("reduce") {
		reductions = 1
	}
	if is("batch_reduce") {
		reductions = max(g.Counts["TPUReplicatedOutput"], 1)
	}
	if is("two merge_calls") || is("twice") || is("in a row") {
		calls = 2
	}
	d := dtypeIn(name)
	if !is("without arguments") {
		x.args = []any{v.argument(c, d, shapeIn(name, 4))}
	}
	x.step = func(rc *strategy.ReplicaContext, in []*graph.Node) []*graph.Node {
		if is("broadcast_to") {
			return []*graph.Node{rc.Broadcast(in[0])}
		}
		for range calls {
			in = eager.MergeCall(rc, func(mc *eager.MergeContext, args ...*eager.MergeValue) []*eager.MergeValue {
				x.observed["cross"] = eager.InCrossReplicaContext(mc.Context())
				x.observed["replica_context"] = eager.InReplicaContext(mc.Context())
				x.observed["strategy_is"] = mc.Strategy() == v.s
				switch {
				case nestedText.MatchString(name), is("all_reduce"):
					// Code in the merge function can still use the replica context, but its methods
					// return errors.
					if g.Error != nil {
						g.Error.Type = errkind.RuntimeError.String()
					}
					if is("all_reduce") {
						rc.AllReduce(op, in[0])
					}
					eager.MergeCall(rc, func(*eager.MergeContext, ...*eager.MergeValue) []*eager.MergeValue { return nil })
				case is("run inside merge_call"):
					inner := v.s.Function(func(_ *strategy.ReplicaContext, in []*graph.Node) []*graph.Node { return in },
						strategy.FunctionOptions{})
					if _, err := inner.Run(mc.Context(), in[0]); err != nil {
						panic(err)
					}
				case len(args) == 0:
					return []*eager.MergeValue{mc.Map(func([]*graph.Node) *graph.Node { return graph.Const(rc.Graph(), float32(3)) })}
				case reductions > 0:
					var sums []*eager.MergeValue
					for range reductions {
						sums = append(sums, mc.Reduce(op, args[0]))
					}
					return sums
				case is("result"), is("constant"):
					return []*eager.MergeValue{mc.Map(func([]*graph.Node) *graph.Node { return graph.Const(rc.Graph(), int32(5)) })}
				}
				return args
			}, in...)
		}
		return in
	}
}

// mergedWrite sets x to a step whose merge call reads a variable, or writes a reduced value or a
// constant to it.
func (v *env) mergedWrite(c *caseRun, g graphGolden, x *traced) {
	name := g.Name
	on, err := v.declared(c, name, writes(g) > 0, false)
	x.err = err
	x.variables = []*strategy.Variable{on}
	reads := writes(g) == 0
	if reads && v.n > 1 && on != nil && on.Synchronization() == strategy.OnRead {
		c.skip(reasonMergeTrace)
	}
	x.step = func(rc *strategy.ReplicaContext, _ []*graph.Node) []*graph.Node {
		return eager.MergeCall(rc, func(mc *eager.MergeContext, args ...*eager.MergeValue) []*eager.MergeValue {
			if reads {
				return []*eager.MergeValue{mc.Map(func(in []*graph.Node) *graph.Node { return graph.AddScalar(in[0], 1) },
					mc.Read(on))}
			}
			y := mc.Map(func([]*graph.Node) *graph.Node { return graph.Const(rc.Graph(), float32(1)) })
			if strings.Contains(name, "reduce") {
				y = mc.Reduce(reductionIn(name), args[0])
			}
			switch {
			case g.Counts["AssignAddVariableOp"] > 0:
				mc.AssignAdd(on, y)
			case g.Counts["AssignSubVariableOp"] > 0:
				mc.AssignSub(on, y)
			default:
				mc.Assign(on, y)
			}
			return args
		}, graph.AddScalar(graph.ConvertDType(rc.ReplicaIDInSyncGroup(), dtypes.Float32), 1))
	}
}

// inside sets x to a step that calls a function of the cross-replica context. It returns false if
// what does not name such a function.
func (v *env) inside(c *caseRun, what string, x *traced) bool {
	s := v.s
	if strings.Contains(what, "another strategy") {
		s = v.other(c)
	}
	value := v.argument(c, dtypes.Float32, []int{4}).(*strategy.PerReplica)
	to := eager.To(value)
	identity := func(_ *strategy.ReplicaContext, in []*graph.Node) []*graph.Node { return in }
	replica := func(*eager.ReplicaContext, ...any) (any, error) { return nil, nil }
	update := func(*eager.UpdateContext, ...any) (any, error) { return nil, nil }
	calls := []struct {
		word string
		call func(ctx context.Context) error
	}{
		{"batch_reduce_to", func(ctx context.Context) error {
			_, err := eager.Of(s).BatchReduceTo(ctx, strategy.Sum, []eager.ReducePair{{Value: value, To: to}})
			return err
		}},
		{"reduce_to", func(ctx context.Context) error {
			_, err := eager.Of(s).ReduceTo(ctx, strategy.Sum, value, to)
			return err
		}},
		{"broadcast_to", func(ctx context.Context) error { _, err := eager.Of(s).BroadcastTo(ctx, value, to); return err }},
		{"call_for_each_replica", func(ctx context.Context) error {
			_, err := eager.Of(s).CallForEachReplica(ctx,
				replica)
			return err
		}},
		{"update_non_slot", func(ctx context.Context) error {
			_, err := eager.Of(s).UpdateNonSlot(ctx, eager.Of(s).NonSlotDevices(), update)
			return err
		}},
		{"gather", func(ctx context.Context) error { _, err := s.Gather(ctx, value, 0); return err }},
		{"reduce", func(ctx context.Context) error { _, err := s.Reduce(ctx, strategy.Sum, value); return err }},
		{"scope", func(ctx context.Context) error { _, err := eager.Of(s).Scope(ctx); return err }},
		{"run", func(ctx context.Context) error {
			_, err := s.Function(identity, strategy.FunctionOptions{}).Run(ctx, float32(1))
			return err
		}},
	}
	for _, k := range calls {
		if strings.Contains(what, k.word) {
			x.args = []any{value}
			x.step = func(rc *strategy.ReplicaContext, in []*graph.Node) []*graph.Node {
				if err := k.call(rc.Context()); err != nil {
					panic(err)
				}
				return in
			}
			return true
		}
	}
	return false
}
