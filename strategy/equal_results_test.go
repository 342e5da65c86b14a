package strategy_test

import (
	"context"
	"slices"
	"testing"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/ml/model"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/internal/test/strategytest"
	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/strategy/eager"
)

// Results that a compiled step computes from equal values or with collectives are equal on all
// replicas, and may be written to variables. Results that may differ are rejected.
func TestResultsOfStepsThatAreTheSameCountAsMirrored(t *testing.T) {
	ctx := context.Background()
	strategytest.OnMeshes(t, strategytest.Meshes, func(t *testing.T, s *strategy.TPUStrategy) {
		n := s.NumReplicasInSync()
		v, err := s.NewVariable(ctx, float32(1), strategy.VariableOptions{Aggregation: strategy.AggregateMean})
		require.NoError(t, err)
		metric, err := s.NewVariable(ctx, float32(1), strategy.VariableOptions{Synchronization: strategy.OnRead,
			Aggregation: strategy.AggregateSum})
		require.NoError(t, err)
		same, err := s.Mirror(ctx, float32(5), logical.Annotation{})
		require.NoError(t, err)
		own, err := eager.Of(s).ValuesFromFunction(ctx, func(c eager.ValueContext) (any,
			error) {
			return float32(c.ReplicaIDInSyncGroup), nil
		})
		require.NoError(t, err)
		store := model.NewStore()
		store.SetParam(model.ParamInitialSeed, int64(1))
		f := s.Function(func(rc *strategy.ReplicaContext, in []*graph.Node) []*graph.Node {
			drawn := rc.Scope().RandomUniform(rc.Graph(), shapes.Make(dtypes.Float32))
			return []*graph.Node{
				graph.AddScalar(in[0], 1),
				graph.Add(in[0], rc.Read(v)),
				rc.AllReduce(strategy.Sum, in[0]),
				graph.Add(in[0], graph.ConvertDType(rc.ReplicaIDInSyncGroup(), dtypes.Float32)),
				graph.Add(in[0], rc.Read(metric)),
				graph.Add(in[0], rc.ReadReduced(metric)),
				graph.Add(in[0], drawn),
			}
		}, strategy.FunctionOptions{Store: store})
		for name, c := range map[string]struct {
			x    any
			want []bool
		}{
			"of a mirrored value":        {same, []bool{true, true, true, false, false, true, false}},
			"of what the replicas have":  {own, []bool{false, false, true, false, false, false, false}},
			"of a host value":            {float32(2), []bool{true, true, true, false, false, true, false}},
			"of what is known to be one": {nil, []bool{true, true, true, false, false, true, false}},
		} {
			if c.x == nil {
				out, err := f.Run(ctx, own)
				require.NoError(t, err)
				c.x = out[2]
			}
			out, err := f.Run(ctx, c.x)
			require.NoError(t, err)
			for i, want := range c.want {
				want = want || n == 1
				require.Equal(t, want, out[i].Mirrored(), "%s: result %d", name, i)
				err := v.Assign(ctx, out[i])
				require.Equal(t, want, err == nil, "%s: result %d: %v", name, i, err)
				if !want {
					require.Equal(t, errkind.TypeError, errkind.KindOf(err))
					continue
				}
				got := strategytest.Values(t, out[i], n)
				require.Equal(t, slices.Repeat(got[:1], n), got)
			}
		}
		// The same in replica code.
		_, err = eager.Of(s).CallForEachReplica(ctx, func(rc *eager.ReplicaContext, _ ...any) (any, error) {
			sum, err := rc.AllReduce(strategy.Sum, float32(rc.ReplicaIDInSyncGroup()))
			require.NoError(t, err)
			out, err := rc.Call(f, sum)
			require.NoError(t, err)
			return rc.Update(v, func(u *eager.UpdateContext, args ...any) (any, error) { return u.Assign(args[0]) }, out[0])
		})
		require.NoError(t, err)
		require.Equal(t, slices.Repeat([]any{float32(n*(n-1))/2 + 1}, n), strategytest.Values(t, v, n))
	})
}

func TestWhatIsGatheredCountsAsMirrored(t *testing.T) {
	ctx := context.Background()
	add := func(u *eager.UpdateContext, args ...any) (any, error) { return u.AssignAdd(args[0]) }
	strategytest.OnMeshes(t, strategytest.Meshes, func(t *testing.T, s *strategy.TPUStrategy) {
		n, e := s.NumReplicasInSync(), eager.Of(s)
		v, err := s.NewVariable(ctx, make([]float32, n), strategy.VariableOptions{Aggregation: strategy.AggregateMean})
		require.NoError(t, err)
		out, err := e.CallForEachReplica(ctx, func(rc *eager.ReplicaContext, _ ...any) (any, error) {
			x, err := rc.AllGather([]float32{float32(rc.ReplicaIDInSyncGroup() + 1)}, 0)
			require.NoError(t, err)
			_, err = rc.Update(v, add, x)
			require.NoError(t, err)
			_, err = rc.MergeCall(func(ctx context.Context, args ...any) (any, error) { return e.Update(ctx, v, add, args[0]) },
				x)
			require.NoError(t, err)
			return x, nil
		})
		require.NoError(t, err)
		_, err = e.Update(ctx, v, add, out)
		require.NoError(t, err)
		want := make([]float32, n)
		for r := range want {
			want[r] = 3 * float32(r+1)
		}
		require.Equal(t, slices.Repeat([]any{want}, n), strategytest.Values(t, v, n))
	})
}
