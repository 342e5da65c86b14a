package strategy_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/gomlx/core/graph"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/internal/test/plugintest"
	"github.com/tpustrategy/tpustrategy/internal/test/strategytest"
	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/strategy/eager"
	"github.com/tpustrategy/tpustrategy/tpu/simhost"
)

func TestVariablesLiveOnlyOnTheirDevices(t *testing.T) {
	sys := plugintest.System(t, 8)
	strategytest.NoErrors(t, strategytest.OnProcesses(t, sys, simhost.Options{Processes: 4}, strategy.Options{Replicas: 8},
		func(ctx context.Context, s *strategy.TPUStrategy) error {
			v, err := s.NewVariable(ctx, []float32{1, 2}, strategy.VariableOptions{Aggregation: strategy.AggregateSum})
			if err != nil {
				return err
			}
			count, err := s.NewVariable(ctx, float32(0), strategy.VariableOptions{Name: "count",
				Synchronization: strategy.OnRead,
				Aggregation:     strategy.AggregateSum})
			if err != nil {
				return err
			}
			step := s.Function(func(rc *strategy.ReplicaContext, in []*graph.Node) []*graph.Node {
				rc.AssignAdd(v, in[0])
				rc.AssignAdd(count, graph.ConvertDType(rc.ReplicaIDInSyncGroup(), dtypes.Float32))
				return []*graph.Node{rc.Read(count)}
			}, strategy.FunctionOptions{Name: "add", LocalBatch: true})
			for range 2 {
				// Two numbers for each of the process's two replicas.
				if _, err := step.Run(ctx, []float32{1, 2, 1, 2}); err != nil {
					return err
				}
			}
			got, err := v.Value(ctx)
			if err != nil {
				return err
			}
			assert.Equal(t, []float32{1 + 16, 2 + 32}, got.Value())
			total, err := count.Value(ctx)
			if err != nil {
				return err
			}
			assert.Equal(t, float32(2*28), total.Value())
			_, err = count.Local(ctx, (2*s.Process()+2)%8)
			assert.ErrorIs(t, err, strategy.ErrRemote)
			return nil
		}))
}

func TestVariablesSpreadOverProcessesAreReadWhole(t *testing.T) {
	sys := plugintest.System(t, 8)
	for _, mesh := range []struct{ processes, replicas, logical int }{{8, 4, 2}, {4, 2, 4}, {4, 4, 2}, {8, 1, 8}} {
		want := make([]float32, 8)
		for i := range want {
			want[i] = float32(i)
		}
		strategytest.NoErrors(t, strategytest.OnProcesses(t, sys, simhost.Options{Processes: mesh.processes},
			strategy.Options{Replicas: mesh.replicas, LogicalDevices: mesh.logical}, func(ctx context.Context,
				s *strategy.TPUStrategy) error {
				split, err := s.NewVariable(ctx, want, strategy.VariableOptions{Annotation: logical.SplitInto(mesh.logical)})
				if err != nil {
					return err
				}
				counts, err := s.NewVariable(ctx, want, strategy.VariableOptions{
					Synchronization: strategy.OnRead, Aggregation: strategy.AggregateMean,
					Annotation: logical.SplitInto(mesh.logical)})
				if err != nil {
					return err
				}
				own, err := s.NewVariable(ctx, want, strategy.VariableOptions{LocalWrites: true})
				if err != nil {
					return err
				}
				for _, v := range []*strategy.Variable{split, counts, own} {
					got, err := v.Value(ctx)
					if err != nil {
						return fmt.Errorf("%s: %w", v, err)
					}
					assert.Equal(t, want, got.Value(), "%s in process %d", v, s.Process())
				}
				return nil
			}))
	}
}

func TestLogicalDevicesHoldTheirParts(t *testing.T) {
	ctx := context.Background()
	s := strategytest.New(t, 2, 2)
	split, err := s.NewVariable(ctx, []float32{1, 2, 3, 4}, strategy.VariableOptions{Annotation: logical.SplitInto(2)})
	require.NoError(t, err)
	require.NoError(t, split.AssignAdd(ctx, []float32{10, 10, 10, 10}))
	for r := range 2 {
		for p, want := range [][]float32{{11, 12}, {13, 14}} {
			part, err := split.LocalShard(ctx, r, p)
			require.NoError(t, err)
			require.Equal(t, want, part.Value())
		}
	}
	_, err = split.LocalShard(ctx, 0, 2)
	require.Equal(t, errkind.ValueError, errkind.KindOf(err))
	on1, err := eager.Of(s).LogicalDevice(ctx, 1)
	require.NoError(t, err)
	v, err := s.NewVariable(on1, float32(1), strategy.VariableOptions{Name: "v"})
	require.NoError(t, err)
	require.Equal(t, logical.AssignTo(1).String(), v.Annotation().String())
	require.Equal(t, eager.Of(s).WorkerDevices(on1), v.Devices())
	require.Equal(t, []string{"v", "v/replica_1"}, []string{v.ComponentName(0), v.ComponentName(1)})
}
