package eager_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/ml/model"
	"github.com/gomlx/gomlx/ml/train/optimizer"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/internal/plugintest"
	"github.com/tpustrategy/tpustrategy/internal/strategytest"
	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/pjrt"
	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/strategy/eager"
	"github.com/tpustrategy/tpustrategy/strategy/train"
)

// onSmallMeshes runs a test on several strategytest.Meshes of four devices.
func onSmallMeshes(t *testing.T, run func(t *testing.T, s *strategy.TPUStrategy, replicas int)) {
	for _, m := range [][2]int{{2, 1}, {2, 2}, {3, 1}} {
		t.Run(fmt.Sprintf("%dx%d", m[0], m[1]), func(t *testing.T) {
			run(t, strategytest.On(t, plugintest.System(t, 4), strategy.Options{Replicas: m[0], LogicalDevices: m[1]}), m[0])
		})
	}
}

func TestArithmeticOfAPartialBatchLeavesItsPaddingOut(t *testing.T) {
	ctx := context.Background()
	onSmallMeshes(t, func(t *testing.T, s *strategy.TPUStrategy, replicas int) {
		var rows []any
		total, count := 0.0, 0.0
		for r := range replicas { // replica r has r+1 rows, each of value r+1
			row := make([]float32, r+1)
			for i := range row {
				row[i] = float32(r + 1)
				total, count = total+float64(r+2), count+1
			}
			rows = append(rows, row)
		}
		batch, err := s.PerReplica(ctx, rows, logical.Annotation{})
		require.NoError(t, err)
		out, err := eager.Of(s).CallForEachReplica(ctx, func(rc *eager.ReplicaContext, args ...any) (any, error) {
			return rc.Add(1, args[0])
		}, batch)
		require.NoError(t, err)
		mean, err := s.Reduce(ctx, strategy.Mean, out.(strategy.Value), 0)
		require.NoError(t, err)
		got, err := mean.Float64(ctx)
		require.NoError(t, err)
		assert.InDelta(t, total/count, got, 1e-6)
		last, err := out.(strategy.Value).Local(ctx, 0)
		require.NoError(t, err)
		assert.Equal(t, []float32{2}, last.Value())

		doubled, err := eager.Of(s).CallForEachReplica(ctx, func(rc *eager.ReplicaContext, args ...any) (any, error) {
			return rc.Sub(args[0], args[1])
		}, batch, out)
		require.NoError(t, err)
		sum, err := s.Reduce(ctx, strategy.Sum, doubled.(strategy.Value), 0)
		require.NoError(t, err)
		got, err = sum.Float64(ctx)
		require.NoError(t, err)
		assert.Equal(t, -count, got)

		_, err = eager.Of(s).CallForEachReplica(ctx, func(rc *eager.ReplicaContext, args ...any) (any, error) {
			return rc.Mul(args[0], []float32{1})
		}, batch)
		assert.Equal(t, strategy.InvalidArgumentError, strategy.KindOf(err), "%v", err)
	})
}

func TestEagerCodeRefusesWhatIsAnotherStrategys(t *testing.T) {
	ctx := context.Background()
	sys := plugintest.System(t, 4)
	make := func(o strategy.Options) *strategy.TPUStrategy {
		s, err := strategy.New(sys, o)
		require.NoError(t, err)
		t.Cleanup(func() { s.Close() })
		return s
	}
	s := make(strategy.Options{Replicas: 4})
	v, err := s.NewVariable(ctx, float32(1), strategy.VariableOptions{Aggregation: strategy.AggregateMean})
	require.NoError(t, err)
	// These lack devices of the strategy; one that has them all is read, see the table
	// of what is taken where.
	for _, o := range []strategy.Options{{Replicas: 2}, {Replicas: 1, LogicalDevices: 2}, {Replicas: 3}} {
		other := make(o)
		var all []any
		for r := range o.Replicas {
			all = append(all, float32(r))
		}
		value, err := other.PerReplica(ctx, all, logical.Annotation{})
		require.NoError(t, err)
		theirs, err := other.NewVariable(ctx, float32(7), strategy.VariableOptions{Aggregation: strategy.AggregateSum})
		require.NoError(t, err)
		part, err := eager.Of(other).Component(value, 0)
		require.NoError(t, err)
		for _, x := range []any{value, theirs, part} {
			for name, f := range map[string]eager.ReplicaFunc{
				"AllReduce": func(rc *eager.ReplicaContext, _ ...any) (any, error) { return rc.AllReduce(strategy.Sum, x) },
				"Add":       func(rc *eager.ReplicaContext, _ ...any) (any, error) { return rc.Add(x, float32(1)) },
				"Assign":    func(rc *eager.ReplicaContext, _ ...any) (any, error) { return rc.Assign(v, x) },
			} {
				_, err := eager.Of(s).CallForEachReplica(ctx, f)
				var mixed *strategy.StrategyError
				assert.ErrorAs(t, err, &mixed, "%s of %v", name, x)
			}
			_, err := eager.Of(s).Update(ctx, v, func(u *eager.UpdateContext, _ ...any) (any, error) { return u.AssignAdd(x) })
			assert.Error(t, err)
		}
	}
	got, err := v.Value(ctx)
	require.NoError(t, err)
	assert.Equal(t, float32(1), got.Value())
}

func TestAMergedValueThatUsesAReplicasNodeIsNotMirrored(t *testing.T) {
	ctx := context.Background()
	onSmallMeshes(t, func(t *testing.T, s *strategy.TPUStrategy, _ int) {
		v, err := s.NewVariable(ctx, float32(5), strategy.VariableOptions{Aggregation: strategy.AggregateSum})
		require.NoError(t, err)
		var kept *strategy.MergeContext
		_, err = s.Function(func(rc *strategy.ReplicaContext, _ []*graph.Node) []*graph.Node {
			id := graph.ConvertDType(rc.ReplicaIDInSyncGroup(), dtypes.Float32)
			return rc.MergeCall(func(mc *strategy.MergeContext, _ ...*strategy.Merged) []*strategy.Merged {
				kept = mc
				x := mc.Map(func([]*graph.Node) *graph.Node { return id })
				mc.Assign(v, x)
				return []*strategy.Merged{x}
			})
		}, strategy.FunctionOptions{}).Run(ctx)
		assert.Equal(t, strategy.TypeError, strategy.KindOf(err), "%v", err)

		_, err = s.Function(func(rc *strategy.ReplicaContext, _ []*graph.Node) []*graph.Node {
			return rc.MergeCall(func(mc *strategy.MergeContext, _ ...*strategy.Merged) []*strategy.Merged {
				x := mc.Map(func(in []*graph.Node) *graph.Node { return graph.MulScalar(in[0], 2) }, mc.Read(v))
				mc.Assign(v, x)
				return []*strategy.Merged{x}
			})
		}, strategy.FunctionOptions{}).Run(ctx)
		require.NoError(t, err)
		got, err := v.Value(ctx)
		require.NoError(t, err)
		assert.Equal(t, float32(10), got.Value())

		_, err = s.Function(func(rc *strategy.ReplicaContext, _ []*graph.Node) []*graph.Node {
			kept.Read(v)
			return []*graph.Node{graph.Const(rc.Graph(), float32(1))}
		}, strategy.FunctionOptions{}).Run(ctx)
		var wrong *strategy.ContextError
		assert.ErrorAs(t, err, &wrong)
	})
}

func TestSumsAndMeansOfWhatIsNoNumberAreRefusedInSteps(t *testing.T) {
	ctx := context.Background()
	s := strategytest.On(t, plugintest.System(t, 2), strategy.Options{Replicas: 2})
	_, err := s.Function(func(rc *strategy.ReplicaContext, _ []*graph.Node) []*graph.Node {
		return []*graph.Node{rc.AllReduce(strategy.Sum, graph.Const(rc.Graph(), true))}
	}, strategy.FunctionOptions{}).Run(ctx)
	assert.Equal(t, strategy.TypeError, strategy.KindOf(err), "%v", err)
	_, err = s.Function(func(rc *strategy.ReplicaContext, _ []*graph.Node) []*graph.Node {
		return rc.MergeCall(func(mc *strategy.MergeContext, x ...*strategy.Merged) []*strategy.Merged {
			return []*strategy.Merged{mc.Reduce(strategy.Mean, x[0], 0)}
		}, graph.Const(rc.Graph(), []int32{1, 4}))
	}, strategy.FunctionOptions{}).Run(ctx)
	assert.Equal(t, strategy.TypeError, strategy.KindOf(err), "%v", err)
	v, err := s.NewVariable(ctx, true, strategy.VariableOptions{Synchronization: strategy.OnRead, Aggregation: strategy.AggregateSum})
	require.NoError(t, err)
	assert.Equal(t, strategy.TypeError, strategy.KindOf(v.Assign(ctx, false)))
	_, err = v.Read(ctx)
	assert.Equal(t, strategy.InvalidArgumentError, strategy.KindOf(err))
	// One replica's has nothing to be added to.
	one := strategytest.On(t, plugintest.System(t, 1), strategy.Options{Replicas: 1})
	v, err = one.NewVariable(ctx, true, strategy.VariableOptions{Synchronization: strategy.OnRead, Aggregation: strategy.AggregateSum})
	require.NoError(t, err)
	got, err := v.Value(ctx)
	require.NoError(t, err)
	assert.Equal(t, true, got.Value())
}

func TestTheMeanOfLargeIntegersIsExact(t *testing.T) {
	ctx := context.Background()
	onSmallMeshes(t, func(t *testing.T, s *strategy.TPUStrategy, replicas int) {
		all := make([]any, replicas)
		for r := range all {
			all[r] = []int64{0}
		}
		all[0], all[1] = []int64{1<<53 + 1}, []int64{-(1 << 53)}
		v, err := s.PerReplica(ctx, all, logical.Annotation{})
		require.NoError(t, err)
		for _, axes := range [][]int{nil, {0}} {
			m, err := s.Reduce(ctx, strategy.Mean, v, axes...)
			require.NoError(t, err)
			got, err := m.Float64(ctx)
			require.NoError(t, err)
			assert.InDelta(t, 1/float64(replicas), got, 1e-15, "axes %v", axes)
		}
		for r := range all {
			all[r] = []uint64{1<<64 - 1}
		}
		u, err := s.PerReplica(ctx, all, logical.Annotation{})
		require.NoError(t, err)
		m, err := s.Reduce(ctx, strategy.Mean, u)
		require.NoError(t, err)
		got, err := m.Float64(ctx)
		require.NoError(t, err)
		assert.Equal(t, float64(1<<64), got, "rounded, not wrapped")
	})
}

func TestAnUpdateHasNoReplicaContext(t *testing.T) {
	ctx := context.Background()
	s := strategytest.On(t, plugintest.System(t, 2), strategy.Options{Replicas: 2})
	v, err := s.NewVariable(ctx, float32(1), strategy.VariableOptions{Aggregation: strategy.AggregateSum})
	require.NoError(t, err)
	for name, f := range map[string]func(rc *eager.ReplicaContext) (any, error){
		"AllReduce": func(rc *eager.ReplicaContext) (any, error) { return rc.AllReduce(strategy.Sum, float32(1)) },
		"AllGather": func(rc *eager.ReplicaContext) (any, error) { return rc.AllGather([]float32{1}, 0) },
		"MergeCall": func(rc *eager.ReplicaContext) (any, error) {
			return rc.MergeCall(func(context.Context, ...any) (any, error) { return nil, nil })
		},
	} {
		_, err := eager.Of(s).Update(ctx, v, func(u *eager.UpdateContext, _ ...any) (any, error) { return f(u.Ops()) })
		var wrong *strategy.ContextError
		assert.ErrorAs(t, err, &wrong, name)
	}
}

func TestANonSlotUpdateNamesTheDevicesThatItRunsOn(t *testing.T) {
	ctx := context.Background()
	s := strategytest.On(t, plugintest.System(t, 2), strategy.Options{Replicas: 2, Semantics: strategy.TensorFlowMirrored})
	e := eager.Of(s)
	f := func(u *eager.UpdateContext, _ ...any) (any, error) { return u.ReplicaID(), nil }
	results, err := e.UpdateNonSlotEach(ctx, e.NonSlotDevices(), f)
	require.NoError(t, err)
	assert.Len(t, results, 2)
	_, err = e.UpdateNonSlotEach(ctx, []string{"/device:TPU:99"}, f)
	assert.Equal(t, strategy.ValueError, strategy.KindOf(err))
	_, err = e.UpdateNonSlotEach(ctx, append(e.NonSlotDevices(), e.NonSlotDevices()...), f)
	assert.Equal(t, strategy.ValueError, strategy.KindOf(err))
}

func TestATensorThatIsTooLargeForTheDevicesIsNoTensorOnTheHost(t *testing.T) {
	ctx := context.Background()
	s := strategytest.On(t, plugintest.System(t, 1), strategy.Options{Replicas: 1})
	results, err := s.Function(func(rc *strategy.ReplicaContext, _ []*graph.Node) []*graph.Node {
		return []*graph.Node{graph.BroadcastPrefix(graph.Const(rc.Graph(), []float32{1, 2}), 1<<40)}
	}, strategy.FunctionOptions{}).Run(ctx)
	if err == nil {
		_, err = results[0].Local(ctx, 0)
	}
	assert.ErrorIs(t, err, pjrt.ResourceExhausted)
}

func TestAComponentOfNothingIsNoTensor(t *testing.T) {
	s := strategytest.On(t, plugintest.System(t, 2), strategy.Options{Replicas: 2})
	_, err := eager.Of(s).CallForEachReplica(context.Background(), func(rc *eager.ReplicaContext, _ ...any) (any, error) {
		return rc.Add(&strategy.Component{}, 1)
	})
	assert.Equal(t, strategy.TypeError, strategy.KindOf(err), "%v", err)
}

func TestATrainingStepWithoutABatchSaysWhichArgument(t *testing.T) {
	ctx := context.Background()
	s := strategytest.On(t, plugintest.System(t, 1), strategy.Options{Replicas: 1})
	step := train.New(s, model.NewStore(), optimizer.StochasticGradientDescent().Done(), func(rc *strategy.ReplicaContext, in []*graph.Node) *graph.Node {
		return graph.ReduceAllSum(in[0])
	})
	_, err := step.Run(ctx, (*strategy.PerReplica)(nil))
	var wrong *strategy.ArgumentError
	require.ErrorAs(t, err, &wrong)
	assert.ErrorContains(t, err, "no value")
}
