package strategy_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/internal/test/plugintest"
	"github.com/tpustrategy/tpustrategy/internal/test/strategytest"
	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/tpu/simhost"
)

// held returns shards as text: replica.device, range and bytes.
func held(all []strategy.Shard) (texts []string) {
	for _, s := range all {
		texts = append(texts, fmt.Sprintf("%d.%d %v+%v %d", s.Replica, s.LogicalDevice, s.Start, s.Size, s.Bytes))
	}
	return texts
}

func TestShardsSayWhatEachDeviceHolds(t *testing.T) {
	ctx := context.Background()
	s := strategytest.New(t, 2, 2)
	rows := [][]float32{{1, 2, 3, 4}, {5, 6, 7, 8}}
	for name, c := range map[string]struct {
		annotation logical.Annotation
		want       []string
	}{
		"whole": {logical.Annotation{}, []string{"0.0 [0 0]+[2 4] 32", "0.1 [0 0]+[2 4] 32", "1.0 [0 0]+[2 4] 32",
			"1.1 [0 0]+[2 4] 32"}},
		"by rows": {logical.SplitInto(2, 1), []string{"0.0 [0 0]+[1 4] 16", "0.1 [1 0]+[1 4] 16", "1.0 [0 0]+[1 4] 16",
			"1.1 [1 0]+[1 4] 16"}},
		"by column": {logical.SplitInto(1, 2), []string{"0.0 [0 0]+[2 2] 16", "0.1 [0 2]+[2 2] 16", "1.0 [0 0]+[2 2] 16",
			"1.1 [0 2]+[2 2] 16"}},
		"assigned": {logical.AssignTo(1), []string{"0.0 [0 0]+[2 4] 32", "0.1 [0 0]+[2 4] 32", "1.0 [0 0]+[2 4] 32",
			"1.1 [0 0]+[2 4] 32"}},
	} {
		m, err := s.Mirror(ctx, rows, c.annotation)
		require.NoError(t, err)
		v, err := s.NewVariable(ctx, rows, strategy.VariableOptions{Annotation: c.annotation})
		require.NoError(t, err)
		p, err := s.PerReplica(ctx, []any{rows, rows}, c.annotation)
		require.NoError(t, err)
		for of, all := range map[string][]strategy.Shard{"mirrored": m.Shards(), "variable": v.Shards(),
			"per replica": p.Shards()} {
			assert.Equal(t, c.want, held(all), "%s, %s", of, name)
		}
		total := 0
		for _, shard := range v.Shards() {
			total += shard.Bytes
		}
		assert.Equal(t, 4*v.BytesPerDevice(), total, name)
		require.NoError(t, m.Close())
		require.NoError(t, v.Close())
		require.NoError(t, p.Close())
		assert.Empty(t, m.Shards(), "closed")
		assert.Empty(t, v.Shards(), "closed")
	}
	scalar, err := s.Mirror(ctx, float32(1), logical.Annotation{})
	require.NoError(t, err)
	assert.Equal(t, []string{"0.0 []+[] 4", "0.1 []+[] 4", "1.0 []+[] 4", "1.1 []+[] 4"}, held(scalar.Shards()))
	assert.Equal(t, "[] on /job:localhost/replica:0/task:0/device:CPU:3", scalar.Shards()[3].String())
	shard := strategy.Shard{Device: "here", Start: []int{4, 0}, Size: []int{2, 3}}
	assert.Equal(t, "[4:6 0:3] on here", shard.String())
}

// Every process knows the shards of all processes.
func TestShardsAreTheSameInEveryProcess(t *testing.T) {
	sys := plugintest.System(t, 4)
	strategytest.NoErrors(t, strategytest.OnProcesses(t, sys, simhost.Options{Processes: 2}, strategy.Options{Replicas: 2,
		LogicalDevices: 2}, func(ctx context.Context, s *strategy.TPUStrategy) error {
		v, err := s.NewVariable(ctx, []float32{1, 2}, strategy.VariableOptions{Annotation: logical.SplitInto(2)})
		if err != nil {
			return err
		}
		assert.Equal(t, []string{"0.0 [0]+[1] 4", "0.1 [1]+[1] 4", "1.0 [0]+[1] 4", "1.1 [1]+[1] 4"}, held(v.Shards()))
		assert.Equal(t, "[1:2] on /job:localhost/replica:0/task:1/device:CPU:1", v.Shards()[3].String())
		return v.Close()
	}))
}
