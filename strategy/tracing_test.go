//lint:file-ignore SA1019 The older names are part of what is tested.

package strategy_test

import (
	"context"
	"maps"
	"path/filepath"
	"slices"
	"testing"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/ml/model"
	"github.com/gomlx/gomlx/ml/train/optimizer"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/compat/contrib"
	v1 "github.com/tpustrategy/tpustrategy/compat/v1"
	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/input"
	"github.com/tpustrategy/tpustrategy/internal/test/plugintest"
	"github.com/tpustrategy/tpustrategy/internal/test/strategytest"
	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/strategy/eager"
	"github.com/tpustrategy/tpustrategy/strategy/feed"
	"github.com/tpustrategy/tpustrategy/strategy/nest"
	"github.com/tpustrategy/tpustrategy/strategy/train"
)

// The table is complete: this test fails for a new call without a line.
func TestEveryCallThatTakesAContextIsInTheTable(t *testing.T) {
	var all []string
	for _, dir := range []string{".", "eager", "feed", "nest", "train", "stepfile", "../fit", "../compat/contrib",
		"../compat/v1"} {
		all = append(all, tracingNames(t, filepath.FromSlash(dir))...)
	}
	all = slices.DeleteFunc(all, func(name string) bool {
		return name == "strategy.StackedBatches.Local" || // never read
			name == "strategy.aheadExecutable.Execute"
	})
	for _, name := range all {
		_, ok := tracingCalls[name]
		require.True(t, ok, "%s has no line: does it build graph where a step is traced, or refuse?", name)
	}
	for name := range tracingCalls {
		require.Contains(t, all, name, "there is no such call")
	}
}

// Eager calls are errors while a step is traced, in replica code and in a merge call. Calls that
// build the graph work there.
func TestCallsInACompiledStepBuildOrRefuse(t *testing.T) {
	ctx := context.Background()
	s := strategytest.On(t, plugintest.System(t, 4), strategy.Options{Replicas: 2, LogicalDevices: 2})
	w := &tracingWorld{s: s, e: eager.Of(s), store: model.NewStore(), d: contrib.New(s), one: v1.New(s, v1.Options{})}
	var err error
	w.v, err = s.NewVariable(ctx, float32(0), strategy.VariableOptions{Aggregation: strategy.AggregateMean})
	require.NoError(t, err)
	w.component, err = w.e.Component(w.v, 0)
	require.NoError(t, err)
	w.value, err = s.PerReplica(ctx, []any{float32(1), float32(2)}, none)
	require.NoError(t, err)
	w.mirrored, err = s.Mirror(ctx, float32(1), none)
	require.NoError(t, err)
	w.function = s.Function(func(*strategy.ReplicaContext, []*graph.Node) []*graph.Node { return nil },
		strategy.FunctionOptions{})
	w.nested = nest.New(s, func(*strategy.ReplicaContext, []any) any { return nil }, strategy.FunctionOptions{})
	w.train = strategytest.OK(train.New(s, w.store, optimizer.Adam().Done(), strategytest.Annotated(1), train.Options{}))
	w.held = strategytest.OK(train.NewEvaluation(s, w.store, strategytest.Annotated(1), train.Options{}))
	w.bound, err = w.function.Bind(ctx)
	require.NoError(t, err)
	w.compiled, err = w.function.Compiled(ctx)
	require.NoError(t, err)
	w.data, err = feed.Distribute(s, input.Range(64).Batch(4, true), feed.DistributeOptions{})
	require.NoError(t, err)
	w.iterator, err = feed.Iterate(ctx, s, w.data)
	require.NoError(t, err)
	defer w.iterator.Close()
	w.feed, err = feed.New(ctx, s, w.data, feed.Options{})
	require.NoError(t, err)
	defer w.feed.Close()
	w.steps, err = w.e.RunStepsOnIterator(ctx, func(context.Context, *eager.MultiStepContext, any) error { return nil },
		w.iterator, 1, nil)
	require.NoError(t, err)
	scope, err := eager.Of(s).Scope(ctx)
	require.NoError(t, err)
	w.dv, err = w.d.GetVariable(scope, "dv", []float32{1, 2})
	require.NoError(t, err)
	w.dset, err = w.d.DistributeDataset(scope, func() (input.Dataset, error) { return input.Range(8), nil })
	require.NoError(t, err)
	w.dit, err = w.dset.MakeOneShotIterator(scope)
	require.NoError(t, err)
	w.dmirrored, err = w.d.Broadcast(scope, float32(1))
	require.NoError(t, err)
	w.oneIt, err = w.one.MakeDatasetIterator(scope, input.Range(64).Batch(4, true))
	require.NoError(t, err)
	defer w.oneIt.Close()

	made := len(s.DistributedVariables())
	tried := 0
	try := func(where string, ctx context.Context, building bool) {
		for _, name := range slices.Sorted(maps.Keys(tracingCalls)) {
			c := tracingCalls[name]
			if c.does == pure {
				continue
			}
			tried++
			err := c.call(ctx, w)
			if building && c.does == builds {
				require.NoError(t, err, "%s %s", name, where)
				continue
			}
			if name == "feed.Iterator.Next" && errkind.KindOf(err) == errkind.ValueError {
				continue // TensorFlow supports next in replica code
			}
			var wrong *strategy.Error
			require.ErrorIs(t, err, strategy.ErrContext, "%s %s", name, where)
			require.ErrorAs(t, err, &wrong)
			require.NotEmpty(t, wrong.Hint, name)
			require.Equal(t, errkind.RuntimeError, errkind.KindOf(err))
		}
	}
	var kept context.Context
	f := s.Function(func(rc *strategy.ReplicaContext, in []*graph.Node) []*graph.Node {
		require.True(t, strategy.Tracing(rc.Context()))
		try("in a replica's code", rc.Context(), false)
		return eager.MergeCall(rc, func(mc *eager.MergeContext, args ...*eager.MergeValue) []*eager.MergeValue {
			w.merged = args[0]
			require.True(t, strategy.Tracing(mc.Context()))
			try("in a merge call", mc.Context(), true)
			inner, err := eager.Of(s).Scope(mc.Context())
			require.NoError(t, err)
			colocated, err := w.e.ColocateVarsWith(inner, w.v)
			require.NoError(t, err)
			try("in a scope in a merge call", colocated, true)
			kept = mc.Context()
			return args
		}, in...)
	}, strategy.FunctionOptions{})
	_, err = f.Run(ctx, w.value)
	require.NoError(t, err)
	require.Greater(t, tried, 200)
	try("after the merge call", kept, false)
	require.Len(t, s.DistributedVariables(), made)
	require.False(t, strategy.Tracing(ctx))
	_, err = w.oneIt.GetNext(ctx)
	require.NoError(t, err, "a refused call changes nothing")
}

// The optimizer pattern of the documentation: a merge call reduces the gradients to the variables
// and updates each variable. It is executed in each run.
func TestAnOptimizerOfThePagesInACompiledStep(t *testing.T) {
	ctx := context.Background()
	strategytest.OnMeshes(t, strategytest.Meshes, func(t *testing.T, s *strategy.TPUStrategy) {
		n, e := s.NumReplicasInSync(), eager.Of(s)
		for _, semantics := range []string{"reduce to", "batch reduce to"} {
			v, err := s.NewVariable(ctx, []float32{10, 20}, strategy.VariableOptions{Aggregation: strategy.AggregateMean})
			require.NoError(t, err)
			w, err := s.NewVariable(ctx, float32(1), strategy.VariableOptions{})
			require.NoError(t, err)
			step := s.Function(func(rc *strategy.ReplicaContext, in []*graph.Node) []*graph.Node {
				return eager.MergeCall(rc, func(mc *eager.MergeContext, args ...*eager.MergeValue) []*eager.MergeValue {
					pairs := []eager.ReducePair{{Value: args[0], To: eager.To(v)}, {Value: args[1], To: eager.To(w)}}
					var reduced []any
					if semantics == "reduce to" {
						for _, p := range pairs {
							reduced = append(reduced, strategytest.OK(e.ReduceTo(mc.Context(), strategy.Mean, p.Value, p.To)))
						}
					} else {
						reduced = strategytest.OK(e.BatchReduceTo(mc.Context(), strategy.Mean, pairs))
					}
					var out []*eager.MergeValue
					for i, x := range []*strategy.Variable{v, w} {
						updated := strategytest.OK(e.Update(mc.Context(), x, func(u *eager.UpdateContext, args ...any) (any, error) {
							part, err := u.Ops().Mul(args[0], 0.5)
							if err != nil {
								return nil, err
							}
							return u.AssignSub(part)
						}, reduced[i]))
						out = append(out, updated.(*eager.MergeValue))
						require.True(t, out[i].Mirrored())
					}
					return out
				}, in...)
			}, strategy.FunctionOptions{})
			rows := func(r int) []float32 { return []float32{float32(2 * r), 4} }
			var gradients, scalars []any
			for r := range n {
				gradients, scalars = append(gradients, rows(r)), append(scalars, float32(r+1))
			}
			g, err := s.PerReplica(ctx, gradients, none)
			require.NoError(t, err)
			h, err := s.PerReplica(ctx, scalars, none)
			require.NoError(t, err)
			for i := range 3 {
				out, err := step.Run(ctx, g, h)
				require.NoError(t, err)
				want := []float32{10 - float32(i+1)*float32(n-1)/2, 20 - float32(i+1)*2}
				for r := range n {
					got, err := v.Local(ctx, r)
					require.NoError(t, err)
					require.Equal(t, want, got.Value(), "run %d", i)
					got, err = out[0].Local(ctx, r)
					require.NoError(t, err)
					require.Equal(t, want, got.Value())
					got, err = w.Local(ctx, r)
					require.NoError(t, err)
					require.InDelta(t, 1-float64(i+1)*float64(n+1)/4, got.Value(), 1e-6)
				}
			}
		}
	})
}

// A variable's own methods with the context of a merge call are executed in each run.
func TestWritesInAMergeCallAreMadeInEachRun(t *testing.T) {
	ctx := context.Background()
	strategytest.OnMeshes(t, strategytest.Meshes, func(t *testing.T, s *strategy.TPUStrategy) {
		n := s.NumReplicasInSync()
		v, err := s.NewVariable(ctx, float32(0), strategy.VariableOptions{})
		require.NoError(t, err)
		rows, err := s.NewVariable(ctx, []float32{0, 0}, strategy.VariableOptions{})
		require.NoError(t, err)
		apart, err := s.NewVariable(ctx, float32(0), strategy.VariableOptions{LocalWrites: true})
		require.NoError(t, err)
		metric, err := s.NewVariable(ctx, float32(0), strategy.VariableOptions{Synchronization: strategy.OnRead,
			Aggregation: strategy.AggregateSum})
		require.NoError(t, err)
		outside, err := s.Mirror(ctx, float32(1), none)
		require.NoError(t, err)
		f := s.Function(func(rc *strategy.ReplicaContext, _ []*graph.Node) []*graph.Node {
			id := graph.ConvertDType(rc.ReplicaIDInSyncGroup(), dtypes.Float32)
			return eager.MergeCall(rc, func(mc *eager.MergeContext, args ...*eager.MergeValue) []*eager.MergeValue {
				c, e := mc.Context(), eager.Of(s)
				require.NoError(t, v.AssignAdd(c, 1))
				total := strategytest.OK(e.ReduceTo(c, strategy.Sum, args[0], eager.To(v)))
				require.NoError(t, v.AssignAdd(c, total))
				require.NoError(t, rows.Scatter(c, strategy.ScatterAdd, []int32{1}, []float32{2}))
				require.NoError(t, apart.Assign(c, args[0]))
				require.NoError(t, metric.Assign(c, v))
				if n > 1 {
					require.Equal(t, errkind.TypeError, errkind.KindOf(v.Assign(c, args[0])), "it differs")
				}
				require.Equal(t, errkind.ValueError, errkind.KindOf(v.Assign(c, []float32{1, 2})), "of another shape")
				require.ErrorIs(t, v.Assign(c, outside), strategy.ErrContext, "no value of the step")
				all := strategytest.OK(eager.Of(s).Gather(c, []any{args[1], 3.0}, 0)).([]any)
				require.Equal(t, 3.0, all[1])
				// Each component of an update, and its result.
				each := strategytest.OK(e.UpdateEach(c, apart, func(u *eager.UpdateContext, args ...any) (any, error) {
					require.True(t, strategy.Tracing(u.Context()))
					require.NoError(t, apart.AssignAdd(u.Context(), args[0]))
					require.ErrorIs(t, strategytest.Err(u.Ops().AllReduce(strategy.Sum, args[0])), strategy.ErrContext)
					require.ErrorIs(t, strategytest.Err(u.Ops().Call(nil)), strategy.ErrOtherStrategy)
					require.ErrorIs(t, strategytest.Err(u.Ops().NewVariable(1, strategy.VariableOptions{})), strategy.ErrContext)
					return u.Read()
				}, args[0]))
				require.Len(t, each, n)
				_, err := e.Update(c, v, func(u *eager.UpdateContext, _ ...any) (any, error) { return u.ReplicaID(), nil })
				require.ErrorIs(t, err, strategy.ErrContext, "there is one trace for all")
				state := strategytest.OK(e.UpdateNonSlot(c, e.NonSlotDevices(), func(u *eager.UpdateContext, args ...any) (any,
					error) {
					return u.Ops().Add(args[0], 1)
				}, total))
				first := strategytest.OK(e.BroadcastTo(c, args[0], eager.To(v))).(*eager.MergeValue)
				parts := strategytest.OK(eager.Of(s).LocalResultsOf(args[0]))
				require.Len(t, parts, n)
				return []*eager.MergeValue{all[0].(*eager.MergeValue), each[n-1].(*eager.MergeValue), first,
					state.(*eager.MergeValue), parts[n-1].(*eager.MergeValue)}
			}, id, graph.Reshape(id, 1))
		}, strategy.FunctionOptions{})
		sum := float32(n * (n - 1) / 2)
		var ids []float32
		for r := range n {
			ids = append(ids, float32(r))
		}
		for i := range 3 {
			out, err := f.Run(ctx)
			require.NoError(t, err)
			total := float32(i+1) * (1 + sum)
			for r := range n {
				for k, want := range []any{ids, 2 * float32(n-1), float32(0), sum + 1, float32(n - 1)} {
					got, err := out[k].Local(ctx, r)
					require.NoError(t, err)
					require.Equal(t, want, got.Value(), "result %d of replica %d in run %d", k, r, i)
				}
			}
			require.Equal(t, slices.Repeat([]any{total}, n), strategytest.Values(t, v, n))
			require.Equal(t, slices.Repeat([]any{[]float32{0, 2 * float32(i+1)}}, n), strategytest.Values(t, rows, n))
			for r, got := range strategytest.Values(t, apart, n) {
				require.Equal(t, 2*float32(r), got)
			}
			got, err := metric.Value(ctx)
			require.NoError(t, err)
			require.InDelta(t, total, got.Value(), 1e-5)
		}
	})
}
