package strategy_test

import (
	"context"
	"io"
	"strings"
	"testing"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/gomlx/core/graph"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/input"
	"github.com/tpustrategy/tpustrategy/internal/plugintest"
	"github.com/tpustrategy/tpustrategy/internal/strategytest"
	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/strategy/eager"
	"github.com/tpustrategy/tpustrategy/strategy/feed"
)

func TestMergeCallInAStep(t *testing.T) {
	ctx := context.Background()
	strategytest.OnMeshes(t, strategytest.Meshes, func(t *testing.T, s *strategy.TPUStrategy) {
		n := s.NumReplicasInSync()
		v, err := s.NewVariable(ctx, float32(10), strategy.VariableOptions{})
		require.NoError(t, err)
		metric, err := s.NewVariable(ctx, float32(0), strategy.VariableOptions{Synchronization: strategy.OnRead, Aggregation: strategy.AggregateSum})
		require.NoError(t, err)
		f := s.Function(func(rc *strategy.ReplicaContext, _ []*graph.Node) []*graph.Node {
			id := graph.ConvertDType(rc.ReplicaIDInSyncGroup(), dtypes.Float32)
			rc.AssignAdd(metric, id)
			out := rc.MergeCall(func(mc *strategy.MergeContext, args ...*strategy.Merged) []*strategy.Merged {
				require.True(t, strategy.InCrossReplicaContext(mc.Context()))
				mean := mc.Reduce(strategy.Mean, args[0])
				mc.AssignSub(v, mean)
				// Each replica's tensor is seen: the last one's minus the first one's.
				all := mc.LocalResults(args[0])
				require.Len(t, all, n)
				spread := mc.Map(func(in []*graph.Node) *graph.Node { return graph.Sub(in[1], in[0]) }, all[0], all[n-1])
				return []*strategy.Merged{spread, args[0], mc.Read(metric)}
			}, id)
			return append(out, rc.ReadAcross(metric), rc.Broadcast(graph.AddScalar(id, 5)))
		}, strategy.FunctionOptions{})
		out, err := f.Run(ctx)
		require.NoError(t, err)
		sum := float32(n * (n - 1) / 2)
		for r := range n {
			for i, want := range []float32{float32(n - 1), float32(r), sum, sum, 5} {
				got, err := out[i].Local(ctx, r)
				require.NoError(t, err)
				require.Equal(t, want, got.Value(), "result %d of replica %d", i, r)
			}
			got, err := v.Local(ctx, r)
			require.NoError(t, err)
			require.Equal(t, 10-sum/float32(n), got.Value())
			got, err = metric.Local(ctx, r)
			require.NoError(t, err)
			require.Equal(t, float32(r), got.Value(), "a metric is the replica's own")
		}
		total, err := metric.Value(ctx)
		require.NoError(t, err)
		require.Equal(t, sum, total.Value())
	})
}

func TestAMergeCallMayBeTheStepsFirstCall(t *testing.T) {
	s := strategytest.On(t, plugintest.System(t, 4), strategy.Options{Replicas: 2})
	f := s.Function(func(rc *strategy.ReplicaContext, _ []*graph.Node) []*graph.Node {
		return rc.MergeCall(func(mc *strategy.MergeContext, _ ...*strategy.Merged) []*strategy.Merged {
			return []*strategy.Merged{mc.Map(func([]*graph.Node) *graph.Node { return graph.Const(rc.Graph(), float32(3)) })}
		})
	}, strategy.FunctionOptions{})
	out, err := f.Run(context.Background())
	require.NoError(t, err)
	got, err := out[0].Local(context.Background(), 1)
	require.NoError(t, err)
	require.Equal(t, float32(3), got.Value())
}

// A branch sees what the step has: it names itself what it cannot do.
func TestBranchesOfAStepUseWhatWasThereBefore(t *testing.T) {
	ctx := context.Background()
	s := strategytest.On(t, plugintest.System(t, 4), strategy.Options{Replicas: 2})
	v, err := s.NewVariable(ctx, []float32{1, 2}, strategy.VariableOptions{Aggregation: strategy.AggregateSum})
	require.NoError(t, err)
	two := func(rc *strategy.ReplicaContext) *graph.Node { return graph.Const(rc.Graph(), []float32{2, 2}) }
	row := func(rc *strategy.ReplicaContext) *graph.Node { return graph.Const(rc.Graph(), []int32{0}) }
	for name, c := range map[string]struct {
		before func(rc *strategy.ReplicaContext)
		branch func(rc *strategy.ReplicaContext) *graph.Node
		want   string
	}{
		"a variable that was read": {func(rc *strategy.ReplicaContext) { rc.Read(v) }, func(rc *strategy.ReplicaContext) *graph.Node { return rc.Read(v) }, ""},
		"the id that was asked for": {func(rc *strategy.ReplicaContext) { rc.ReplicaIDInSyncGroup() }, func(rc *strategy.ReplicaContext) *graph.Node {
			return graph.BroadcastToDims(graph.ConvertDType(rc.ReplicaIDInSyncGroup(), dtypes.Float32), 2)
		}, ""},
		"a sum":                {nil, func(rc *strategy.ReplicaContext) *graph.Node { return rc.AllReduce(strategy.Sum, two(rc)) }, ""},
		"a mean":               {nil, func(rc *strategy.ReplicaContext) *graph.Node { return rc.AllReduce(strategy.Mean, two(rc)) }, ""},
		"a broadcast":          {func(rc *strategy.ReplicaContext) { rc.ReplicaIDInSyncGroup() }, func(rc *strategy.ReplicaContext) *graph.Node { return rc.Broadcast(two(rc)) }, ""},
		"a variable met first": {nil, func(rc *strategy.ReplicaContext) *graph.Node { return rc.Read(v) }, "call Read before it"},
		"an id met first":      {nil, func(rc *strategy.ReplicaContext) *graph.Node { return rc.ReplicaIDInSyncGroup() }, "call it before"},
		"a write":              {func(rc *strategy.ReplicaContext) { rc.Read(v) }, func(rc *strategy.ReplicaContext) *graph.Node { return rc.Assign(v, two(rc)) }, "write it after"},
		"a scatter": {func(rc *strategy.ReplicaContext) { rc.Read(v) }, func(rc *strategy.ReplicaContext) *graph.Node {
			return rc.Scatter(strategy.ScatterAdd, v, row(rc), graph.Const(rc.Graph(), []float32{2}))
		}, "write it after"},
	} {
		t.Run(name, func(t *testing.T) {
			f := s.Function(func(rc *strategy.ReplicaContext, _ []*graph.Node) []*graph.Node {
				if c.before != nil {
					c.before(rc)
				}
				on := graph.Const(rc.Graph(), true)
				branch := func(*graph.Graph) []*graph.Node { return []*graph.Node{c.branch(rc)} }
				return graph.If(on, graph.NewClosure(rc.Graph(), branch), graph.NewClosure(rc.Graph(), branch))
			}, strategy.FunctionOptions{})
			_, err := f.Run(ctx)
			if c.want == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, c.want)
			require.Equal(t, strategy.RuntimeError, strategy.KindOf(err))
		})
	}
}

func TestAnOnReadWriteDoesNotCommunicate(t *testing.T) {
	ctx := context.Background()
	s, err := strategy.New(plugintest.System(t, 4), strategy.Options{Replicas: 2, LogicalDevices: 2})
	require.NoError(t, err)
	defer s.Close()
	for sync, collectives := range map[strategy.VariableSynchronization]int{strategy.OnRead: 0, strategy.OnWrite: 1} {
		v, err := s.NewVariable(ctx, float32(0), strategy.VariableOptions{Synchronization: sync, Aggregation: strategy.AggregateSum})
		require.NoError(t, err)
		c, err := s.Function(func(rc *strategy.ReplicaContext, _ []*graph.Node) []*graph.Node {
			rc.AssignAdd(v, graph.ConvertDType(rc.ReplicaIDInSyncGroup(), dtypes.Float32))
			return nil
		}, strategy.FunctionOptions{}).Compiled(ctx)
		require.NoError(t, err)
		program := string(c.Module.Text)
		require.Equal(t, collectives, strings.Count(program, `"stablehlo.all_reduce"`), sync)
		require.Contains(t, program, "tf.aliasing_output", "the variable's memory is used again")
	}
}

func TestRunStepsKeepTheLastOutputs(t *testing.T) {
	ctx := context.Background()
	strategytest.OnMeshes(t, strategytest.Meshes, func(t *testing.T, s *strategy.TPUStrategy) {
		n := s.NumReplicasInSync()
		d, err := input.Distribute(input.Range(4*n).Batch(n, false), input.Options{Replicas: n})
		require.NoError(t, err)
		it, err := feed.Iterate(ctx, s, d)
		require.NoError(t, err)
		defer it.Close()
		e := eager.Of(s)
		m, err := e.RunStepsOnIterator(ctx, func(ctx context.Context, m *eager.MultiStepContext, in any) error {
			require.NoError(t, m.SetLastStepOutput(ctx, "total", in, strategy.Sum))
			_, err := e.CallForEachReplica(ctx, func(rc *eager.ReplicaContext, args ...any) (any, error) {
				return nil, m.SetNonTensorOutput(rc.Context(), "id", rc.ReplicaIDInSyncGroup())
			}, in)
			return err
		}, it, 3, map[string]any{"before": 1})
		require.NoError(t, err)
		total, err := m.LastStepOutputs()["total"].(*strategy.Mirrored).Value(ctx)
		require.NoError(t, err)
		want := int64(0)
		for r := range n {
			want += int64(2*n + r)
		}
		require.Equal(t, []int64{want}, total.Value())
		require.Equal(t, 1, m.LastStepOutputs()["before"])
		require.Len(t, m.NonTensorOutputs()["id"], n)
		// One of four steps is left.
		m, err = e.RunStepsOnIterator(ctx, func(_ context.Context, m *eager.MultiStepContext, _ any) error {
			steps, _ := m.LastStepOutputs()["steps"].(int)
			return m.SetLastStepOutput(ctx, "steps", steps+1)
		}, it, 5, nil)
		require.ErrorIs(t, err, io.ErrUnexpectedEOF)
		require.Equal(t, strategy.OutOfRangeError, strategy.KindOf(err))
		require.ErrorContains(t, err, "after 1 of 5 steps")
		require.Equal(t, 1, m.LastStepOutputs()["steps"], "the steps that ran")
		_, err = e.RunStepsOnIterator(ctx, func(context.Context, *eager.MultiStepContext, any) error { return nil }, it, 1, nil)
		require.ErrorIs(t, err, io.ErrUnexpectedEOF)
	})
}

func TestADistributedDatasetTrainsToItsMean(t *testing.T) {
	ctx := context.Background()
	strategytest.OnMeshes(t, strategytest.Meshes, func(t *testing.T, s *strategy.TPUStrategy) {
		// 10 numbers in global batches of 4: the last one is short, some replicas
		// have none of it.
		d, err := feed.Distribute(s, input.Range(10).Batch(4, false), feed.DistributeOptions{})
		require.NoError(t, err)
		total, err := s.NewVariable(ctx, int64(0), strategy.VariableOptions{Synchronization: strategy.OnRead, Aggregation: strategy.AggregateSum})
		require.NoError(t, err)
		add := s.Function(func(rc *strategy.ReplicaContext, in []*graph.Node) []*graph.Node {
			real := graph.Where(rc.RealElements(0), in[0], graph.ZerosLike(in[0]))
			rc.AssignAdd(total, graph.ReduceAllSum(real))
			return nil
		}, strategy.FunctionOptions{PadRagged: true})
		it, err := feed.Iterate(ctx, s, d)
		require.NoError(t, err)
		defer it.Close()
		var means []float64
		for {
			batch, err := it.Next(ctx)
			if err == io.EOF {
				break
			}
			require.NoError(t, err)
			_, err = add.Run(ctx, batch)
			require.NoError(t, err)
			mean, err := s.Reduce(ctx, strategy.Mean, batch.(strategy.Value), 0)
			require.NoError(t, err)
			x, err := mean.Float64(ctx)
			require.NoError(t, err)
			means = append(means, x)
		}
		require.Equal(t, []float64{1.5, 5.5, 8.5}, means)
		sum, err := total.Value(ctx)
		require.NoError(t, err)
		require.Equal(t, int64(45), sum.Value())
		f, err := feed.DistributeFromFunction(s, func(c input.Context) (input.Dataset, error) {
			return input.Range(8).Batch(2, false), nil
		}, feed.DistributeOptions{})
		require.NoError(t, err)
		require.Equal(t, s.NumReplicasInSync(), f.LocalReplicas())
	})
}
