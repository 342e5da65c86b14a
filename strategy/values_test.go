package strategy_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/gomlx/gomlx/core/graph"
	"github.com/stretchr/testify/assert"

	"github.com/tpustrategy/tpustrategy/internal/test/plugintest"
	"github.com/tpustrategy/tpustrategy/internal/test/strategytest"
	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/pjrt"
	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/tpu/simhost"
)

func TestOnlyWhatIsHereIsRead(t *testing.T) {
	sys := plugintest.System(t, 8)
	strategytest.NoErrors(t, strategytest.OnProcesses(t, sys, simhost.Options{Processes: 4}, strategy.Options{Replicas: 4,
		LogicalDevices: 2}, func(ctx context.Context, s *strategy.TPUStrategy) error {
		here := s.Process()
		v, err := s.PerReplica(ctx, []any{[]float32{float32(here), 1}}, logical.SplitInto(2))
		if err != nil {
			return err
		}
		mine, err := s.LocalResults(ctx, v)
		if err != nil {
			return err
		}
		assert.Len(t, mine, 1)
		assert.Equal(t, []float32{float32(here), 1}, mine[0].Value())
		_, err = v.Local(ctx, (here+1)%4)
		assert.ErrorIs(t, err, strategy.ErrRemote)
		assert.ErrorContains(t, err, fmt.Sprintf("it is in process %d, this is process %d ", (here+1)%4, here))
		// All processes can read a sum over the replicas and mirrored values.
		total, err := s.Reduce(ctx, strategy.Sum, v)
		if err != nil {
			return err
		}
		for r := range 4 {
			got, err := total.Local(ctx, r)
			if err != nil {
				return err
			}
			assert.Equal(t, []float32{6, 4}, got.Value())
		}
		_, err = s.PerReplica(ctx, []any{1, 2}, logical.Annotation{})
		assert.ErrorContains(t, err, "2 values for 4 replicas, of which this process has 1")
		return nil
	}))
	// A replica over several processes: each process reads its own shards.
	strategytest.NoErrors(t, strategytest.OnProcesses(t, sys, simhost.Options{Processes: 8}, strategy.Options{Replicas: 4,
		LogicalDevices: 2}, func(ctx context.Context, s *strategy.TPUStrategy) error {
		whole, err := s.PerReplica(ctx, []any{float32(s.LocalReplicas()[0])}, logical.Annotation{})
		if err != nil {
			return err
		}
		got, err := whole.Local(ctx, s.Process()/2)
		if err != nil {
			return err
		}
		assert.Equal(t, float32(s.Process()/2), got.Value())
		split, err := s.Mirror(ctx, []float32{1, 2}, logical.SplitInto(2))
		if err != nil {
			return err
		}
		_, err = split.Value(ctx)
		assert.ErrorIs(t, err, strategy.ErrRemote)
		return nil
	}))
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
