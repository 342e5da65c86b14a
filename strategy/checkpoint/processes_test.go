package checkpoint_test

import (
	"context"
	"sync"
	"testing"

	"github.com/gomlx/gomlx/core/tensors"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/internal/test/plugintest"
	"github.com/tpustrategy/tpustrategy/internal/test/strategytest"
	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/strategy/checkpoint"
	"github.com/tpustrategy/tpustrategy/tpu/simhost"
)

// Variables that are sharded over two and four processes are saved and restored there and on one
// process. After a failed save no process waits.
func TestProcessesSaveAndRestoreTogether(t *testing.T) {
	sys := plugintest.System(t, 4)
	values := map[string]*tensors.Tensor{
		"matrix": tensors.FromValue([][]float32{{1, 2, 3, 4}, {5, 6, 7, 8}}), "sum": tensors.FromValue([]float32{8, 16}),
		"step": tensors.FromScalar(int64(5)),
	}
	group := func(ctx context.Context, s *strategy.TPUStrategy) (g checkpoint.Group, err error) {
		for _, opts := range []strategy.VariableOptions{
			{Name: "matrix", Annotation: logical.SplitInto(1, s.NumLogicalDevices())},
			{Name: "sum", Synchronization: strategy.OnRead, Aggregation: strategy.AggregateSum},
			{Name: "step"},
		} {
			v, err := s.NewVariable(ctx, tensors.FromShape(values[opts.Name].Shape()), opts)
			if err != nil {
				return g, err
			}
			g = g.With(v)
		}
		return g, nil
	}
	for _, size := range []struct{ processes, replicas, logical int }{{2, 2, 2}, {2, 1, 4}, {4, 4, 1}, {4, 2, 2}} {
		dir := t.TempDir()
		program := func(ctx context.Context, s *strategy.TPUStrategy) error {
			g, err := group(ctx, s)
			if err != nil {
				return err
			}
			for _, v := range g.Variables {
				if err := v.RestoreValue(ctx, values[v.Path()]); err != nil {
					return err
				}
			}
			m, err := checkpoint.OpenManager(ctx, dir, checkpoint.ManagerOptions{Strategy: s})
			if err != nil {
				return err
			}
			defer m.Close()
			d := run{m}
			if err := d.Save(ctx, 1, g, checkpoint.SaveOptions{}); err != nil {
				return err
			}
			assert.ErrorIs(t, d.Save(ctx, 1, g, checkpoint.SaveOptions{}), checkpoint.ErrStepOrder)
			if err := s.Barrier(ctx, "saved"); err != nil {
				return err
			}
			fresh, err := group(ctx, s)
			if err != nil {
				return err
			}
			c, err := d.Latest(ctx)
			if err != nil {
				return err
			}
			defer c.Close()
			if err := c.Restore(ctx, fresh, checkpoint.RestoreOptions{}); err != nil {
				return err
			}
			for _, v := range fresh.Variables {
				got, err := v.SaveValue(ctx)
				if err != nil {
					return err
				}
				assert.Equal(t, values[v.Path()].Value(), got.Value(), "%v, process %d: %s", size, s.Process(), v.Path())
			}
			return nil
		}
		cluster, err := simhost.New(sys, simhost.Options{Processes: size.processes, Compiler: plugintest.Programs(t)})
		require.NoError(t, err)
		var all sync.WaitGroup
		for i := range size.processes {
			all.Go(func() {
				ctx := context.Background()
				own, err := cluster.Open(ctx, i)
				if !assert.NoError(t, err) {
					return
				}
				s, err := strategy.New(own, strategy.Options{Replicas: size.replicas, LogicalDevices: size.logical})
				if assert.NoError(t, err) {
					assert.NoError(t, program(ctx, s), "%v, process %d", size, i)
					assert.NoError(t, s.Close())
				}
				assert.NoError(t, own.Close())
			})
		}
		all.Wait()
		alone := strategytest.On(t, sys, strategy.Options{Replicas: 4, LogicalDevices: 1})
		g, err := group(context.Background(), alone)
		require.NoError(t, err)
		restoration(t, runIn(t, dir), g, checkpoint.RestoreOptions{})
		for _, v := range g.Variables {
			got, err := v.SaveValue(context.Background())
			require.NoError(t, err)
			require.Equal(t, values[v.Path()].Value(), got.Value())
		}
	}
}
