package strategy_test

import (
	"context"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/gomlx/compute/dtypes/bfloat16"
	"github.com/gomlx/compute/dtypes/float16"
	"github.com/gomlx/gomlx/core/tensors"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/internal/test/plugintest"
	"github.com/tpustrategy/tpustrategy/internal/test/strategytest"
	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/strategy/eager"
)

func TestReduceOfAnySplitIsReduceOfTheWhole(t *testing.T) {
	ctx := context.Background()
	rng := rand.New(rand.NewPCG(7, 7))
	strategytest.OnMeshes(t, strategytest.Meshes, func(t *testing.T, s *strategy.TPUStrategy) {
		n := s.NumReplicasInSync()
		for range 12 {
			rows := rng.IntN(9)
			data := make([][3]float64, rows)
			var sum [3]float64
			for i := range data {
				for j := range 3 {
					data[i][j] = float64(rng.IntN(100))
					sum[j] += data[i][j]
				}
			}
			// Any split, including empty shares.
			parts := make([]any, n)
			for r := range n {
				take := len(data)
				if r < n-1 {
					take = rng.IntN(len(data) + 1)
				}
				flat := []float64{}
				for _, row := range data[:take] {
					flat = append(flat, row[:]...)
				}
				data = data[take:]
				parts[r] = tensors.FromFlatDataAndDimensions(flat, len(flat)/3, 3)
			}
			v, err := s.PerReplica(ctx, parts, logical.Annotation{})
			require.NoError(t, err)
			for op, scale := range map[strategy.ReduceOp]float64{strategy.Sum: 1, strategy.Mean: float64(rows)} {
				got, err := s.Reduce(ctx, op, v, 0)
				require.NoError(t, err)
				x, err := got.Value(ctx)
				require.NoError(t, err)
				for j, value := range x.Value().([]float64) {
					if rows == 0 && op == strategy.Mean {
						require.True(t, math.IsNaN(value))
						continue
					}
					require.InDelta(t, sum[j]/scale, value, 1e-12)
				}
				both, err := s.Reduce(ctx, op, v, 0, -1)
				require.NoError(t, err)
				if rows > 0 {
					total, err := both.Float64(ctx)
					require.NoError(t, err)
					want := sum[0] + sum[1] + sum[2]
					if op == strategy.Mean {
						want /= 3 * float64(rows)
					}
					require.InDelta(t, want, total, 1e-12)
				}
			}
			all, err := s.Gather(ctx, v, 0)
			require.NoError(t, err)
			x, err := all.Value(ctx)
			require.NoError(t, err)
			require.Equal(t, []int{rows, 3}, x.Shape().Dimensions)
			var flat []float64
			require.NoError(t, x.ConstFlatData(func(f any) { flat = f.([]float64) }))
			var column float64
			for i := 0; i < len(flat); i += 3 {
				column += flat[i]
			}
			require.Equal(t, sum[0], column)
		}
	})
}

func TestIntegersReduceExactly(t *testing.T) {
	ctx := context.Background()
	s := strategytest.New(t, 2, 1)
	v, err := s.PerReplica(ctx, []any{[]int32{1, 2}, []int32{4}}, logical.Annotation{})
	require.NoError(t, err)
	mean, err := s.Reduce(ctx, strategy.Mean, v, 0)
	require.NoError(t, err)
	require.Equal(t, "(Float64)", mean.Shape().String())
	x, err := mean.Float64(ctx)
	require.NoError(t, err)
	require.Equal(t, 7.0/3, x)
	_, err = s.Reduce(ctx, strategy.Sum, v)
	require.Equal(t, errkind.InvalidArgumentError, errkind.KindOf(err), "%v", err)
	// Integers of few bits have a mean with a smaller dtype.
	v, err = s.PerReplica(ctx, []any{[]uint8{255, 250}, []uint8{254}}, logical.Annotation{})
	require.NoError(t, err)
	mean, err = s.Reduce(ctx, strategy.Mean, v, 0)
	require.NoError(t, err)
	small, err := mean.Value(ctx)
	require.NoError(t, err)
	require.Equal(t, float32(253), small.Value())
}

// TestMeansInHalfPrecisionAreNotBiased compares means and shares with float32 results: the error of
// a third is 0.2 % in bfloat16, and 0.02 % in float16.
func TestMeansInHalfPrecisionAreNotBiased(t *testing.T) {
	ctx := context.Background()
	s := strategytest.New(t, 3, 1)
	for name, values := range map[string][]any{
		"float16":  {float16.FromFloat32(1.5), float16.FromFloat32(2.5), float16.FromFloat32(3)},
		"bfloat16": {bfloat16.FromFloat32(1.5), bfloat16.FromFloat32(2.5), bfloat16.FromFloat32(3)},
	} {
		x, err := s.PerReplica(ctx, values, logical.Annotation{})
		require.NoError(t, err)
		mean, err := s.Reduce(ctx, strategy.Mean, x)
		require.NoError(t, err)
		got, err := mean.Value(ctx)
		require.NoError(t, err)
		want := map[string]any{"float16": float16.FromFloat32(7. / 3), "bfloat16": bfloat16.FromFloat32(7. / 3)}[name]
		require.Equal(t, want, got.Value(), name)
	}
	// A mean is rounded once, and not in each replica's share.
	six := strategytest.New(t, 6, 1)
	var sixths []any
	for _, v := range []float32{1.5, 2.5, 3, 4, 5, 6.25} {
		sixths = append(sixths, float16.FromFloat32(v))
	}
	x, err := six.PerReplica(ctx, sixths, logical.Annotation{})
	require.NoError(t, err)
	mean, err := six.Reduce(ctx, strategy.Mean, x)
	require.NoError(t, err)
	got, err := mean.Value(ctx)
	require.NoError(t, err)
	require.Equal(t, float16.FromFloat32(22.25/6), got.Value())
	// Also the mean of a batch whose sum and size overflow the dtype.
	many := make([]float16.Float16, 70000)
	for i := range many {
		many[i] = float16.FromFloat32(3)
	}
	x, err = s.PerReplica(ctx, []any{many, many[:1], many[:0]}, logical.Annotation{})
	require.NoError(t, err)
	mean, err = s.Reduce(ctx, strategy.Mean, x, 0)
	require.NoError(t, err)
	got, err = mean.Value(ctx)
	require.NoError(t, err)
	require.Equal(t, float16.FromFloat32(3), got.Value())
	// Multiplication by the reciprocal would return 682.
	v, err := s.NewVariable(ctx, float16.FromFloat32(0), strategy.VariableOptions{Name: "sum",
		Synchronization: strategy.OnRead, Aggregation: strategy.AggregateSum})
	require.NoError(t, err)
	require.NoError(t, v.Assign(ctx, float16.FromFloat32(2047)))
	share, err := v.Local(ctx, 0)
	require.NoError(t, err)
	require.Equal(t, float16.FromFloat32(682.5), share.Value())
}

func TestReduceNamesAxesThatTensorsDoNotHave(t *testing.T) {
	s := strategytest.On(t, plugintest.System(t, 4), strategy.Options{Replicas: 2})
	v := scalarsOf(t, s)
	for _, axis := range []int{0, -1, 7} {
		_, err := s.Reduce(context.Background(), strategy.Sum, v, axis)
		require.Equal(t, errkind.ValueError, errkind.KindOf(err), "%v", err)
		require.ErrorContains(t, err, "rank 0")
	}
}

// The results of MirroredStrategy for the mean of replicas' integers; TPUStrategy does not support
// it.
func TestReplicasAverageIntegers(t *testing.T) {
	ctx := context.Background()
	mean := func(s *strategy.TPUStrategy, x func(id int) any) ([]any, error) {
		out, err := eager.Of(s).CallForEachReplica(ctx, func(rc *eager.ReplicaContext, _ ...any) (any, error) {
			return rc.AllReduce(strategy.Mean, x(rc.ReplicaIDInSyncGroup()))
		})
		if err != nil {
			return nil, err
		}
		var all []any
		for r := range s.NumReplicasInSync() {
			part, err := out.(*strategy.PerReplica).Local(ctx, r)
			require.NoError(t, err)
			all = append(all, part.Value())
		}
		return all, nil
	}
	ints := func(id int) any { return tensors.FromScalar(int32(id + 1)) }
	for _, p := range []int{1, 2} {
		for _, semantics := range []strategy.Semantics{0, strategy.TensorFlowMirrored} {
			s := strategytest.New(t, 2, p, strategy.Options{Semantics: semantics})
			got, err := mean(s, ints)
			require.NoError(t, err)
			require.Equal(t, []any{1.5, 1.5}, got)
			got, err = mean(s, func(id int) any { return tensors.FromScalar(uint8(255 - id)) })
			require.NoError(t, err)
			require.Equal(t, []any{float32(254.5), float32(254.5)}, got)
			_, err = mean(s, func(id int) any { return tensors.FromScalar(id > 0) })
			require.Equal(t, errkind.InvalidArgumentError, errkind.KindOf(err), "%v", err)
		}
		_, err := mean(strategytest.New(t, 2, p, strategy.Options{Semantics: strategy.TensorFlowTPU}), ints)
		require.Equal(t, errkind.TypeError, errkind.KindOf(err), "%v", err)
	}
	got, err := mean(strategytest.New(t, 1, 1, strategy.Options{Semantics: strategy.TensorFlowMirrored}), ints)
	require.NoError(t, err)
	require.Equal(t, []any{int32(1)}, got)
}

func TestTheMeanOfLargeIntegersIsExact(t *testing.T) {
	ctx := context.Background()
	strategytest.OnMeshes(t, [][2]int{{2, 1}, {2, 2}, {3, 1}}, func(t *testing.T, s *strategy.TPUStrategy) {
		replicas := s.NumReplicasInSync()
		all := make([]any, replicas)
		for r := range all {
			all[r] = []int64{0}
		}
		all[0], all[1] = []int64{1<<53 + 1}, []int64{-(1 << 53)}
		v, err := s.PerReplica(ctx, all, logical.Annotation{})
		require.NoError(t, err)
		for _, axes := range [][]int{nil, {0}} {
			m, err := s.Reduce(ctx, strategy.Mean, v, axes...)
			require.NoError(t, err)
			got, err := m.Float64(ctx)
			require.NoError(t, err)
			assert.InDelta(t, 1/float64(replicas), got, 1e-15, "axes %v", axes)
		}
		for r := range all {
			all[r] = []uint64{1<<64 - 1}
		}
		u, err := s.PerReplica(ctx, all, logical.Annotation{})
		require.NoError(t, err)
		m, err := s.Reduce(ctx, strategy.Mean, u)
		require.NoError(t, err)
		got, err := m.Float64(ctx)
		require.NoError(t, err)
		assert.Equal(t, float64(1<<64), got, "rounded, not wrapped")
	})
}
