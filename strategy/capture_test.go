package strategy_test

import (
	"context"
	"strings"
	"testing"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/gomlx/core/graph"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/internal/test/plugintest"
	"github.com/tpustrategy/tpustrategy/internal/test/strategytest"
	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/strategy"
)

// A branch reads the step's variables; the error names an operation that a branch cannot do.
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
		"a variable that was read": {func(rc *strategy.ReplicaContext) { rc.Read(v) },
			func(rc *strategy.ReplicaContext) *graph.Node { return rc.Read(v) }, ""},
		"the id that was asked for": {func(rc *strategy.ReplicaContext) { rc.ReplicaIDInSyncGroup() },
			func(rc *strategy.ReplicaContext) *graph.Node {
				return graph.BroadcastToDims(graph.ConvertDType(rc.ReplicaIDInSyncGroup(), dtypes.Float32), 2)
			}, ""},
		"a sum": {nil, func(rc *strategy.ReplicaContext) *graph.Node {
			return rc.AllReduce(strategy.Sum,
				two(rc))
		}, ""},
		"a mean": {nil, func(rc *strategy.ReplicaContext) *graph.Node {
			return rc.AllReduce(strategy.Mean,
				two(rc))
		}, ""},
		"a broadcast": {func(rc *strategy.ReplicaContext) { rc.ReplicaIDInSyncGroup() },
			func(rc *strategy.ReplicaContext) *graph.Node { return rc.Broadcast(two(rc)) }, ""},
		"a variable met first": {nil, func(rc *strategy.ReplicaContext) *graph.Node { return rc.Read(v) },
			"call Read before it"},
		"an id met first": {nil, func(rc *strategy.ReplicaContext) *graph.Node { return rc.ReplicaIDInSyncGroup() },
			"call it before"},
		"a write": {func(rc *strategy.ReplicaContext) { rc.Read(v) },
			func(rc *strategy.ReplicaContext) *graph.Node { return rc.Assign(v, two(rc)) }, "write it after"},
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
			require.Equal(t, errkind.RuntimeError, errkind.KindOf(err))
		})
	}
}

func TestAnOnReadWriteDoesNotCommunicate(t *testing.T) {
	ctx := context.Background()
	s := strategytest.New(t, 2, 2)
	for sync, collectives := range map[strategy.VariableSynchronization]int{strategy.OnRead: 0, strategy.OnWrite: 1} {
		v, err := s.NewVariable(ctx, float32(0), strategy.VariableOptions{Synchronization: sync,
			Aggregation: strategy.AggregateSum})
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

func TestReplicasWriteVariablesInTheStep(t *testing.T) {
	ctx := context.Background()
	strategytest.OnMeshes(t, strategytest.Meshes, func(t *testing.T, s *strategy.TPUStrategy) {
		n := s.NumReplicasInSync()
		for _, c := range []struct {
			opts strategy.VariableOptions
			want func(r int) float32 // starting from 10, after += id+1
		}{
			{strategy.VariableOptions{Aggregation: strategy.AggregateSum}, func(int) float32 { return 10 + float32(n*(n+1)/2) }},
			{strategy.VariableOptions{Aggregation: strategy.AggregateMean}, func(int) float32 { return 10 + float32(n+1)/2 }},
			{strategy.VariableOptions{Aggregation: strategy.AggregateFirst}, func(int) float32 { return 11 }},
			{strategy.VariableOptions{LocalWrites: true}, func(r int) float32 { return 11 + float32(r) }},
			{strategy.VariableOptions{Synchronization: strategy.OnRead, Aggregation: strategy.AggregateSum},
				func(r int) float32 { return 11 + float32(r) }},
		} {
			for _, initial := range []any{float32(10), []float32{10, 10, 10, 10}} {
				opts := c.opts
				if _, ok := initial.([]float32); ok && s.NumLogicalDevices() > 1 {
					opts.Annotation = logical.SplitInto(s.NumLogicalDevices())
				}
				v, err := s.NewVariable(ctx, initial, opts)
				require.NoError(t, err)
				f := s.Function(func(rc *strategy.ReplicaContext, in []*graph.Node) []*graph.Node {
					one := graph.ConvertDType(graph.AddScalar(rc.ReplicaIDInSyncGroup(), 1), dtypes.Float32)
					x := graph.BroadcastToDims(one, v.Shape().Dimensions...)
					return []*graph.Node{rc.AssignAdd(v, x)}
				}, strategy.FunctionOptions{})
				out, err := f.Run(ctx)
				require.NoError(t, err)
				for r, got := range strategytest.Values(t, v, n) {
					want := any(c.want(r))
					if _, ok := initial.([]float32); ok {
						want = []float32{c.want(r), c.want(r), c.want(r), c.want(r)}
					}
					require.Equal(t, want, got, "%s, replica %d", v, r)
					result, err := out[0].Local(ctx, r)
					require.NoError(t, err)
					require.Equal(t, want, result.Value())
				}
				require.NoError(t, v.Close())
				_, err = f.Run(ctx)
				require.ErrorIs(t, err, strategy.ErrClosed)
			}
		}
	})
}

func TestAReplicaWriteWithoutAggregationIsRefused(t *testing.T) {
	ctx := context.Background()
	s := strategytest.New(t, 2, 1)
	v, err := s.NewVariable(ctx, float32(10), strategy.VariableOptions{Name: "w"})
	require.NoError(t, err)
	_, err = s.Function(func(rc *strategy.ReplicaContext, _ []*graph.Node) []*graph.Node {
		return []*graph.Node{rc.Assign(v, 3.0)}
	}, strategy.FunctionOptions{}).Run(ctx)
	require.Equal(t, errkind.ValueError, errkind.KindOf(err), "%v", err)
	require.ErrorContains(t, err, `"w"`)
}
