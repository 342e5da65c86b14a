package strategy_test

import (
	"context"
	"testing"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/ml/model"
	"github.com/gomlx/gomlx/ml/train/optimizer"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/input"
	"github.com/tpustrategy/tpustrategy/internal/plugintest"
	"github.com/tpustrategy/tpustrategy/internal/simhost"
	"github.com/tpustrategy/tpustrategy/internal/strategytest"
	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/strategy/feed"
	"github.com/tpustrategy/tpustrategy/strategy/train"
	"github.com/tpustrategy/tpustrategy/tpu"
)

func TestProcessesLoopOverStepsAsOneDoes(t *testing.T) {
	sys := plugintest.System(t, 8)
	xs, ys := trainingData(5)
	train := func(ctx context.Context, s *strategy.TPUStrategy, local bool) (float64, error) {
		store := model.NewStore()
		store.SetParam(model.ParamInitialSeed, int64(7))
		step := train.New(s, store, optimizer.Adam().Done(), strategytest.Annotated(2), train.Options{LocalBatch: local})
		var batches [][]any
		for i := range xs {
			x, y := xs[i], ys[i]
			if local {
				x, y = rows(x, s.Process(), s.NumProcesses()), rows(y, s.Process(), s.NumProcesses())
			}
			batches = append(batches, []any{x, y})
		}
		loss, err := step.RunSteps(ctx, batches...)
		if err != nil {
			return 0, err
		}
		return loss.Float64(ctx)
	}
	opts := strategy.Options{Replicas: 4, LogicalDevices: 2}
	s, err := strategy.New(sys, opts)
	require.NoError(t, err)
	defer s.Close()
	want, err := train(context.Background(), s, false)
	require.NoError(t, err)
	strategytest.NoErrors(t, strategytest.OnProcesses(t, sys, simhost.Options{Processes: 4}, opts, func(ctx context.Context, s *strategy.TPUStrategy) error {
		for _, local := range []bool{false, true} {
			got, err := train(ctx, s, local)
			if err != nil {
				return err
			}
			assert.Equal(t, want, got, "local batches %t", local)
		}
		return nil
	}))
}

func TestProcessesFeedAheadOfTheStep(t *testing.T) {
	sys := plugintest.System(t, 8)
	const batches = 6
	strategytest.NoErrors(t, strategytest.OnProcesses(t, sys, simhost.Options{Processes: 4}, strategy.Options{}, func(ctx context.Context, s *strategy.TPUStrategy) error {
		o, err := s.InputOptions()
		if err != nil {
			return err
		}
		d, err := input.Distribute(input.Range(batches*16).Batch(16, true), o)
		if err != nil {
			return err
		}
		f, err := feed.New(ctx, s, d, feed.Options{})
		if err != nil {
			return err
		}
		defer f.Close()
		sum := s.Function(func(rc *strategy.ReplicaContext, in []*graph.Node) []*graph.Node {
			return []*graph.Node{rc.AllReduce(strategy.Sum, graph.ReduceAllSum(graph.ConvertDType(in[0], dtypes.Float32)))}
		}, strategy.FunctionOptions{Name: "sum"})
		total, steps := float32(0), 0
		for batch, err := range f.All(ctx) {
			if err != nil {
				return err
			}
			out, err := sum.Run(ctx, batch.Args()...)
			if err != nil {
				return err
			}
			local, err := s.LocalResults(ctx, out[0])
			if err != nil {
				return err
			}
			total += local[0].Value().(float32)
			steps++
			if err := out[0].Close(); err != nil {
				return err
			}
		}
		assert.Equal(t, batches, steps)
		assert.Equal(t, float32(96*95/2), total, "every number once, over all processes")
		return nil
	}))
}

func TestEveryProcessTakesPart(t *testing.T) {
	sys := plugintest.System(t, 8)
	first, err := tpu.NewDeviceAssignment(mustTopology(t, 8, 2), [][]tpu.Coordinates{{{0, 0, 0, 0}}, {{0, 0, 0, 1}}})
	require.NoError(t, err)
	errs := strategytest.OnProcesses(t, sys, simhost.Options{Processes: 2}, strategy.Options{Assignment: first}, func(ctx context.Context, s *strategy.TPUStrategy) error {
		assert.Equal(t, 1, s.NumProcesses(), "the other one has no device of it")
		return s.Barrier(ctx, "alone")
	})
	require.NoError(t, errs[0])
	var option *strategy.OptionError
	require.ErrorAs(t, errs[1], &option)
	assert.ErrorContains(t, errs[1], "no device of this process, which is process 1 of 2")
}

func TestInputNeedsReplicasInTheOrderOfTheProcesses(t *testing.T) {
	sys := plugintest.System(t, 4)
	topology := mustTopology(t, 4, 2)
	mixed, err := tpu.NewDeviceAssignment(topology, [][]tpu.Coordinates{{{0, 0, 0, 0}}, {{1, 0, 0, 0}}, {{0, 0, 0, 1}}, {{1, 0, 0, 1}}})
	require.NoError(t, err)
	strategytest.NoErrors(t, strategytest.OnProcesses(t, sys, simhost.Options{Processes: 2}, strategy.Options{Assignment: mixed}, func(ctx context.Context, s *strategy.TPUStrategy) error {
		assert.Equal(t, [][]int{{0, 2}, {1, 3}}, s.ProcessReplicas())
		_, err := s.InputOptions()
		var option *strategy.OptionError
		assert.ErrorAs(t, err, &option)
		// Feeding by hand has no such limit.
		v, err := s.PerReplica(ctx, []any{float32(s.Process()), float32(s.Process() + 2)}, logical.Annotation{})
		if err != nil {
			return err
		}
		sum, err := s.Reduce(ctx, strategy.Sum, v)
		if err != nil {
			return err
		}
		got, err := sum.Float64(ctx)
		assert.Equal(t, 6.0, got)
		return err
	}))
}

func mustTopology(t testing.TB, devices, processes int) tpu.Topology {
	t.Helper()
	cluster, err := simhost.New(plugintest.System(t, devices), simhost.Options{Processes: processes})
	require.NoError(t, err)
	return cluster.Topology()
}
