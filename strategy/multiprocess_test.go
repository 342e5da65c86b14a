package strategy_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/gomlx/gomlx/core/tensors"
	"github.com/gomlx/gomlx/ml/model"
	"github.com/gomlx/gomlx/ml/train/optimizer"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/internal/test/plugintest"
	"github.com/tpustrategy/tpustrategy/internal/test/strategytest"
	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/strategy/train"
	"github.com/tpustrategy/tpustrategy/tpu"
	"github.com/tpustrategy/tpustrategy/tpu/simhost"
)

// rows are some of a batch's rows.
func rows(t *tensors.Tensor, part, parts int) *tensors.Tensor {
	n, columns := t.Shape().Dimensions[0]/parts, t.Shape().Dimensions[1]
	flat := tensors.MustCopyFlatData[float32](t)
	return tensors.FromFlatDataAndDimensions(flat[part*n*columns:(part+1)*n*columns], n, columns)
}

func TestProcessesTrainAsOneDoes(t *testing.T) {
	sys := plugintest.System(t, 8)
	xs, ys := strategytest.Regression(rand.New(rand.NewPCG(3, 4)), 6)
	for _, mesh := range []struct{ processes, replicas, logical int }{
		{4, 8, 1}, {4, 4, 2}, {2, 4, 2}, {8, 8, 1}, {2, 2, 4},
		{4, 2, 4}, {8, 1, 8}, // replicas that span processes
	} {
		t.Run(fmt.Sprintf("%d processes, %dx%d", mesh.processes, mesh.replicas, mesh.logical), func(t *testing.T) {
			opts := strategy.Options{Replicas: mesh.replicas, LogicalDevices: mesh.logical, Variables: logical.Rules{
				logical.Match(`hidden/.*weights`, logical.SplitInto(1, mesh.logical)),
			}}
			train := func(ctx context.Context, strat *strategy.TPUStrategy, local bool) (losses []float64, err error) {
				store := model.NewStore()
				store.SetParam(model.ParamInitialSeed, int64(7))
				step := strategytest.OK(train.New(strat, store, optimizer.Adam().LearningRate(0.01).Done(),
					strategytest.Annotated(mesh.logical), train.Options{LocalBatch: local}))
				for i := range xs {
					x, y := xs[i], ys[i]
					if local {
						x, y = rows(x, strat.Process(), strat.NumProcesses()), rows(y, strat.Process(), strat.NumProcesses())
					}
					loss, err := step.Run(ctx, x, y)
					if err != nil {
						return nil, err
					}
					value, err := loss.Float64(ctx)
					if err != nil {
						return nil, err
					}
					losses = append(losses, value)
				}
				return losses, nil
			}
			opts.Compiler = plugintest.Programs(t)
			strat, err := strategy.New(sys, opts)
			require.NoError(t, err)
			want, err := train(context.Background(), strat, false)
			require.NoError(t, err)
			require.NoError(t, strat.Close())
			for _, local := range []bool{false, true} {
				if local && mesh.replicas < mesh.processes {
					continue // processes that share a replica feed the same rows
				}
				got := make([][]float64, mesh.processes)
				strategytest.NoErrors(t, strategytest.OnProcesses(t, sys, simhost.Options{Processes: mesh.processes}, opts,
					func(ctx context.Context, strat *strategy.TPUStrategy) (err error) {
						got[strat.Process()], err = train(ctx, strat, local)
						return err
					}))
				for process, losses := range got {
					assert.Equal(t, want, losses, "process %d, local batches %t", process, local)
				}
			}
		})
	}
}

func TestAProcessHasItsOwnReplicasAndDevices(t *testing.T) {
	sys := plugintest.System(t, 8)
	type view struct {
		local, devices []int
		of             [][]int
	}
	views := func(replicas, logicalDevices int) []view {
		got := make([]view, 4)
		strategytest.NoErrors(t, strategytest.OnProcesses(t, sys, simhost.Options{Processes: 4},
			strategy.Options{Replicas: replicas, LogicalDevices: logicalDevices}, func(_ context.Context,
				s *strategy.TPUStrategy) error {
				got[s.Process()] = view{s.LocalReplicas(), s.LocalDevices(), s.ProcessReplicas()}
				return nil
			}))
		return got
	}
	for i, v := range views(4, 2) {
		assert.Equal(t, view{[]int{i}, []int{2 * i, 2*i + 1}, [][]int{{0}, {1}, {2}, {3}}}, v)
	}
	for i, v := range views(8, 1) {
		assert.Equal(t, view{[]int{2 * i, 2*i + 1}, []int{2 * i, 2*i + 1}, [][]int{{0, 1}, {2, 3}, {4, 5}, {6, 7}}}, v)
	}
	for i, v := range views(2, 4) {
		assert.Equal(t, view{[]int{i / 2}, []int{2 * i, 2*i + 1}, [][]int{{0}, {0}, {1}, {1}}}, v)
	}
	strat := strategytest.New(t, 2, 1)
	assert.Equal(t, 1, strat.NumProcesses())
	assert.Equal(t, []int{0, 1}, strat.LocalReplicas())
}

func TestProcessesLoopOverStepsAsOneDoes(t *testing.T) {
	sys := plugintest.System(t, 8)
	xs, ys := strategytest.Regression(rand.New(rand.NewPCG(3, 4)), 5)
	train := func(ctx context.Context, s *strategy.TPUStrategy, local bool) (float64, error) {
		store := model.NewStore()
		store.SetParam(model.ParamInitialSeed, int64(7))
		step := strategytest.OK(train.New(s, store, optimizer.Adam().Done(), strategytest.Annotated(2),
			train.Options{LocalBatch: local}))
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
	s := strategytest.On(t, sys, opts)
	want, err := train(context.Background(), s, false)
	require.NoError(t, err)
	strategytest.NoErrors(t, strategytest.OnProcesses(t, sys, simhost.Options{Processes: 4}, opts,
		func(ctx context.Context, s *strategy.TPUStrategy) error {
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

func mustTopology(t testing.TB, devices, processes int) tpu.Topology {
	t.Helper()
	cluster, err := simhost.New(plugintest.System(t, devices), simhost.Options{Processes: processes})
	require.NoError(t, err)
	return cluster.Topology()
}
