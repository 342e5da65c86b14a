package strategy_test

import (
	"context"
	"testing"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/gomlx/core/graph"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/input"
	"github.com/tpustrategy/tpustrategy/internal/test/plugintest"
	"github.com/tpustrategy/tpustrategy/internal/test/strategytest"
	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/strategy/feed"
	"github.com/tpustrategy/tpustrategy/tpu"
	"github.com/tpustrategy/tpustrategy/tpu/simhost"
)

func TestProcessesFeedAheadOfTheStep(t *testing.T) {
	sys := plugintest.System(t, 8)
	const batches = 6
	strategytest.NoErrors(t, strategytest.OnProcesses(t, sys, simhost.Options{Processes: 4}, strategy.Options{},
		func(ctx context.Context, s *strategy.TPUStrategy) error {
			o, err := feed.InputOptions(s)
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

func TestInputNeedsReplicasInTheOrderOfTheProcesses(t *testing.T) {
	sys := plugintest.System(t, 4)
	topology := mustTopology(t, 4, 2)
	mixed, err := tpu.NewDeviceAssignment(topology, [][]tpu.Coordinates{{{0, 0, 0, 0}}, {{1, 0, 0, 0}}, {{0, 0, 0, 1}},
		{{1, 0, 0, 1}}})
	require.NoError(t, err)
	strategytest.NoErrors(t, strategytest.OnProcesses(t, sys, simhost.Options{Processes: 2},
		strategy.Options{Assignment: mixed}, func(ctx context.Context, s *strategy.TPUStrategy) error {
			assert.Equal(t, [][]int{{0, 2}, {1, 3}}, s.ProcessReplicas())
			_, err := feed.InputOptions(s)
			var option *strategy.OptionError
			assert.ErrorAs(t, err, &option)
			// Calls without package feed do not have this limit.
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

// The value is the same whether a process passes the values of all replicas, of its own replicas,
// or in several forms.
func TestAProcessGivesATensorForEachReplicaOrForItsOwn(t *testing.T) {
	sys := plugintest.System(t, 4)
	of := func(r int) input.Tensor { return input.Vector(float32(r), float32(10*r)) }
	host := func(r int) []float32 { return []float32{float32(r), float32(10 * r)} }
	strategytest.NoErrors(t, strategytest.OnProcesses(t, sys, simhost.Options{Processes: 2}, strategy.Options{},
		func(ctx context.Context, s *strategy.TPUStrategy) error {
			own := s.LocalReplicas()
			same, err := s.Mirror(ctx, host(own[1]), logical.Annotation{})
			if err != nil {
				return err
			}
			for name, values := range map[string][]any{
				"input, all":      {of(0), of(1), of(2), of(3)},
				"input, own":      {of(own[0]), of(own[1])},
				"host, all":       {host(0), host(1), host(2), host(3)},
				"mixed, all":      {of(0), host(1), host(2), of(3)},
				"mixed, own":      {host(own[0]), of(own[1])},
				"on devices, own": {host(own[0]), same},
			} {
				v, err := s.PerReplica(ctx, values, logical.Annotation{})
				if !assert.NoError(t, err, name) {
					continue
				}
				for _, r := range own {
					got, err := v.Local(ctx, r)
					if assert.NoError(t, err, name) {
						assert.Equal(t, host(r), got.Value(), "%s: replica %d", name, r)
					}
				}
				if err := v.Close(); err != nil {
					return err
				}
			}
			for text, values := range map[string][]any{
				"that of replica 3 has shape (Float32)[1], that of replica 0 (Float32)[2]; pad": {of(0), of(1), of(2),
					input.Vector(float32(1))},
				"that of replica 1 has shape (Int64)[2], that of replica 0 (Float32)[2]; pad": {of(0), input.Vector(int64(1), 2),
					of(2), of(3)},
				"3 values for 4 replicas, of which this process has 2; give": {of(0), of(1), of(2)},
				"cannot be on a device; turn it into numbers with Map": {input.Vector("a"),
					input.Vector("b"), input.Vector("c"), input.Vector("d")},
			} {
				_, err := s.PerReplica(ctx, values, logical.Annotation{})
				var own *strategy.Error
				assert.ErrorAs(t, err, &own, text)
				assert.ErrorContains(t, err, text)
			}
			return same.Close()
		}))
}

func TestHostsShareADatasetUntilItEnds(t *testing.T) {
	sys := plugintest.System(t, 8)
	for name, c := range map[string]struct {
		make  func(o input.Options) (*input.DistributedDataset, error)
		steps int
		sum   int64
	}{
		"one dataset": {steps: 3, sum: 231, make: func(o input.Options) (*input.DistributedDataset, error) {
			return input.Distribute(input.Range(22).Batch(8, false), o)
		}},
		// Host i has i batches for each of its replicas. The hosts vote at each step.
		"a dataset of each host": {steps: 3, sum: 2 * (0*0 + 1*1 + 2*2 + 3*3),
			make: func(o input.Options) (*input.DistributedDataset, error) {
				return input.FromFunction(func(c input.Context) (input.Dataset, error) {
					host := c.InputPipelineID
					return input.Range(4).Skip(host).Take(1).Repeat(2*host).Batch(1, false), nil
				}, o)
			}},
	} {
		t.Run(name, func(t *testing.T) {
			sums, steps := make([]int64, 4), make([]int, 4)
			strategytest.NoErrors(t, strategytest.OnProcesses(t, sys, simhost.Options{Processes: 4}, strategy.Options{},
				func(ctx context.Context, s *strategy.TPUStrategy) error {
					o, err := feed.InputOptions(s)
					if err != nil {
						return err
					}
					d, err := c.make(o)
					if err != nil {
						return err
					}
					for step, err := range d.All(ctx) {
						if err != nil {
							return err
						}
						steps[s.Process()]++
						assert.Len(t, step.Replicas, 2)
						for _, part := range step.Replicas {
							if part.IsZero() {
								continue
							}
							for _, x := range part.Leaf().Flat().([]int64) {
								sums[s.Process()] += x
							}
						}
					}
					return nil
				}))
			assert.Equal(t, []int{c.steps, c.steps, c.steps, c.steps}, steps, "all see the same number of steps")
			assert.Equal(t, c.sum, sums[0]+sums[1]+sums[2]+sums[3])
		})
	}
}
