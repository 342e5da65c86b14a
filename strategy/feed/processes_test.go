package feed_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/gomlx/gomlx/core/graph"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/input"
	"github.com/tpustrategy/tpustrategy/internal/test/plugintest"
	"github.com/tpustrategy/tpustrategy/internal/test/strategytest"
	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/strategy/feed"
	"github.com/tpustrategy/tpustrategy/tpu/simhost"
)

// The test sums the batches over all replicas of all processes.
func TestEachProcessFeedsItsReplicas(t *testing.T) {
	var mu sync.Mutex
	sums := map[int][]int32{}
	errs := strategytest.OnProcesses(t, plugintest.System(t, 4), simhost.Options{Processes: 2},
		strategy.Options{Replicas: 4}, func(ctx context.Context, s *strategy.TPUStrategy) error {
			f, err := feed.FromDataset(ctx, s, pairs(32).Batch(8, true), feed.Options{})
			if err != nil {
				return err
			}
			defer f.Close()
			total := s.Function(func(rc *strategy.ReplicaContext, in []*graph.Node) []*graph.Node {
				return []*graph.Node{rc.AllReduce(strategy.Sum, graph.ReduceAllSum(in[1]))}
			}, strategy.FunctionOptions{Name: "total"})
			for batch, err := range f.All(ctx) {
				if err != nil {
					return err
				}
				if len(batch.Rows) != 2 {
					return fmt.Errorf("rows %v", batch.Rows)
				}
				for i, r := range s.LocalReplicas() {
					x, err := batch.Values[1].Local(ctx, r)
					if err != nil {
						return err
					}
					// The processes receive chunks of two rows in turn.
					first := int32(batch.Index)*8 + int32(i*s.NumProcesses()+s.Process())*2
					assert.Equal(t, []int32{first, first + 1}, x.Value(), "local replica %d", i)
				}
				out, err := total.Run(ctx, batch.Args()...)
				if err != nil {
					return err
				}
				x, err := out[0].Local(ctx, s.LocalReplicas()[0])
				if err != nil {
					return err
				}
				mu.Lock()
				sums[s.Process()] = append(sums[s.Process()], x.Value().(int32))
				mu.Unlock()
			}
			return nil
		})
	strategytest.NoErrors(t, errs)
	want := []int32{28, 92, 156, 220}
	require.Equal(t, map[int][]int32{0: want, 1: want}, sums)
}

func TestProcessesThatMayEndApartAreToldSo(t *testing.T) {
	var paths []string
	dir := t.TempDir()
	for i := range 2 {
		paths = append(paths, filepath.Join(dir, fmt.Sprint(i)))
		require.NoError(t, os.WriteFile(paths[i], []byte(strings.Repeat("7\n", 8+8*i)), 0o644))
	}
	numbers := input.Lines(paths, input.FileOptions{}).Map(func(context.Context, input.Element) (input.Element, error) {
		return input.Leaf(input.Scalar(int32(7))), nil
	}, input.MapOptions{Spec: input.Leaf(input.TensorSpec{Kind: input.Int32})})
	errs := strategytest.OnProcesses(t, plugintest.System(t, 4), simhost.Options{Processes: 2},
		strategy.Options{Replicas: 4}, func(ctx context.Context, s *strategy.TPUStrategy) error {
			f, err := feed.FromDataset(ctx, s, numbers.Batch(8, true), feed.Options{})
			if err != nil {
				return err
			}
			_, err = f.Next(ctx)
			assert.ErrorIs(t, err, feed.ErrVote)
			if err := f.Close(); err != nil {
				return err
			}
			f, err = feed.FromDataset(ctx, s, numbers.Repeat(-1).Batch(8, true), feed.Options{})
			if err != nil {
				return err
			}
			for range 5 {
				if _, err := f.Next(ctx); err != nil {
					return err
				}
			}
			return f.Close()
		})
	strategytest.NoErrors(t, errs)
}
