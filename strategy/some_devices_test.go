package strategy_test

import (
	"context"
	"testing"

	"github.com/gomlx/gomlx/core/graph"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/internal/engine"
	"github.com/tpustrategy/tpustrategy/internal/test/plugintest"
	"github.com/tpustrategy/tpustrategy/internal/test/strategytest"
	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/pjrt/leaktest"
	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/tpu/simhost"
)

// keep releases a value on all but some devices.
func keep(v *strategy.Mirrored, only []bool) error {
	return engine.Internal(v).KeepOnDevices(only)
}

func TestAValueOfSomeDevicesIsReadAndRunThereAndTakesNoMoreMemory(t *testing.T) {
	ctx := context.Background()
	s := strategytest.New(t, 2, 2)
	plus := s.Function(func(_ *strategy.ReplicaContext, in []*graph.Node) []*graph.Node {
		return []*graph.Node{graph.AddScalar(in[0], 1)}
	}, strategy.FunctionOptions{Name: "plus", Results: []logical.Annotation{{}}})
	rows, more := [][]float32{{1, 2}, {3, 4}}, [][]float32{{2, 3}, {4, 5}}
	for name, c := range map[string]struct {
		annotation logical.Annotation
		only       []bool
		held       []string
	}{
		"one replica, split": {logical.SplitInto(2, 1), []bool{false, false, true, true}, []string{"1.0 [0 0]+[1 2] 8",
			"1.1 [1 0]+[1 2] 8"}},
		"one device": {logical.Annotation{}, []bool{false, false, false, true}, []string{"1.1 [0 0]+[2 2] 16"}},
		"a column": {logical.Annotation{}, []bool{true, false, true, false}, []string{"0.0 [0 0]+[2 2] 16",
			"1.0 [0 0]+[2 2] 16"}},
	} {
		t.Run(name, func(t *testing.T) {
			m, err := s.Mirror(ctx, rows, c.annotation)
			require.NoError(t, err)
			require.NoError(t, keep(m, c.only))
			buffers, err := strategy.BuffersOf(m)
			require.NoError(t, err)
			for d, b := range buffers {
				assert.Equal(t, c.only[d], b != nil, "device %d", d)
			}
			for range 2 { // the run copies the value to all devices, and releases the copies
				assert.Equal(t, c.held, held(m.Shards()))
				got, err := m.Value(ctx)
				require.NoError(t, err)
				assert.Equal(t, rows, got.Value())
				for r := range 2 {
					got, err := m.Local(ctx, r)
					require.NoError(t, err)
					assert.Equal(t, rows, got.Value(), "replica %d", r)
				}
				open := leaktest.OpenObjects()["buffer"]
				out, err := plus.Run(ctx, m)
				require.NoError(t, err)
				for r := range 2 {
					got, err := out[0].Local(ctx, r)
					require.NoError(t, err)
					assert.Equal(t, more, got.Value(), "replica %d", r)
				}
				require.NoError(t, out[0].Close())
				mean, err := s.Reduce(ctx, strategy.Mean, m) // an internal program
				require.NoError(t, err)
				got, err = mean.Local(ctx, 0)
				require.NoError(t, err)
				assert.Equal(t, rows, got.Value())
				require.NoError(t, mean.Close())
				assert.Equal(t, open, leaktest.OpenObjects()["buffer"], "the copies for the run are closed")
			}
			require.NoError(t, m.Close())
			_, err = plus.Run(ctx, m)
			require.ErrorIs(t, err, strategy.ErrClosed)
			assert.Empty(t, m.Shards())
		})
	}
}

// A value that only another process has can be read there.
func TestAValueOfAnotherProcessesDevicesIsSaidToBeThere(t *testing.T) {
	sys := plugintest.System(t, 4)
	strategytest.NoErrors(t, strategytest.OnProcesses(t, sys, simhost.Options{Processes: 2}, strategy.Options{},
		func(ctx context.Context, s *strategy.TPUStrategy) error {
			m, err := s.Mirror(ctx, []float32{1, 2}, logical.Annotation{})
			if err != nil {
				return err
			}
			if err := keep(m, []bool{false, false, false, true}); err != nil {
				return err
			}
			got, err := m.Value(ctx)
			if s.Process() == 1 {
				if assert.NoError(t, err) {
					assert.Equal(t, []float32{1, 2}, got.Value())
				}
				return m.Close()
			}
			if assert.ErrorIs(t, err, strategy.ErrRemote) {
				assert.EqualError(t, err, "strategy: reading logical device 0 of replica 3: it is in process 1, this is process "+
					"0 with replicas [0 1]; read it there, or reduce to all devices where it is made")
			}
			return m.Close()
		}))
}
