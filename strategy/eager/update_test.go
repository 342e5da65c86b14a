package eager_test

import (
	"context"
	"math"
	"testing"

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

func TestUpdateScattersTheComponentOnce(t *testing.T) {
	ctx := context.Background()
	strategytest.OnMeshes(t, strategytest.Meshes, func(t *testing.T, s *strategy.TPUStrategy) {
		n, e := s.NumReplicasInSync(), eager.Of(s)
		for _, a := range []strategy.VariableAggregation{strategy.AggregateNone, strategy.AggregateSum,
			strategy.AggregateMean, strategy.AggregateFirst} {
			for name, scatter := range map[string]func(u *eager.UpdateContext) (any, error){
				"update": func(u *eager.UpdateContext) (any, error) {
					return u.Scatter(strategy.ScatterAdd, []int32{1}, []float32{10})
				},
				"ops": func(u *eager.UpdateContext) (any, error) {
					return u.Ops().Scatter(strategy.ScatterAdd, u.Variable(), []int32{1}, []float32{10})
				},
				"variable": func(u *eager.UpdateContext) (any, error) {
					return nil, u.Variable().Scatter(u.Context(), strategy.ScatterAdd, []int32{1}, []float32{10})
				},
			} {
				v, err := s.NewVariable(ctx, []float32{1, 2, 3, 4}, strategy.VariableOptions{Aggregation: a})
				require.NoError(t, err)
				_, err = e.Update(ctx, v, func(u *eager.UpdateContext, _ ...any) (any, error) { return scatter(u) })
				require.NoError(t, err, "%s, %s", name, a)
				for _, got := range strategytest.Values(t, v, n) {
					require.Equal(t, []float32{1, 12, 3, 4}, got, "%s, %s", name, a)
				}
			}
		}
		// If components may differ, each receives its own rows.
		v, err := s.NewVariable(ctx, []float32{1, 2, 3, 4}, strategy.VariableOptions{LocalWrites: true})
		require.NoError(t, err)
		own := func(u *eager.UpdateContext, _ ...any) (any, error) {
			rows := make([]int32, 1+u.ReplicaID()) // row 0, ReplicaID+1 times
			updates := make([]float32, len(rows))
			for i := range updates {
				updates[i] = 1
			}
			return u.Scatter(strategy.ScatterAdd, rows, updates)
		}
		_, err = e.Update(ctx, v, own)
		require.NoError(t, err)
		for r, got := range strategytest.Values(t, v, n) {
			require.Equal(t, []float32{float32(2 + r), 2, 3, 4}, got)
		}
		mirrored, err := s.NewVariable(ctx, []float32{1, 2, 3, 4},
			strategy.VariableOptions{Aggregation: strategy.AggregateSum})
		require.NoError(t, err)
		_, err = e.Update(ctx, mirrored, own)
		if n > 1 {
			require.Equal(t, errkind.ValueError, errkind.KindOf(err))
			require.Equal(t, []float32{1, 2, 3, 4}, strategytest.Values(t, mirrored, n)[n-1])
		}
	})
}

func TestVariablesActOnTheComponentInAnUpdate(t *testing.T) {
	ctx := context.Background()
	strategytest.OnMeshes(t, strategytest.Meshes, func(t *testing.T, s *strategy.TPUStrategy) {
		n, e := s.NumReplicasInSync(), eager.Of(s)
		w, err := s.NewVariable(ctx, float32(1), strategy.VariableOptions{Aggregation: strategy.AggregateSum})
		require.NoError(t, err)
		m, err := s.NewVariable(ctx, float32(0), strategy.VariableOptions{Synchronization: strategy.OnRead,
			Aggregation: strategy.AggregateSum})
		require.NoError(t, err)
		numbers := make([]any, n)
		for r := range numbers {
			numbers[r] = float32(r + 1)
		}
		each, err := s.PerReplica(ctx, numbers, logical.Annotation{})
		require.NoError(t, err)
		same, err := s.Mirror(ctx, float32(2), logical.Annotation{})
		require.NoError(t, err)
		_, err = e.Update(ctx, m, func(u *eager.UpdateContext, args ...any) (any, error) {
			ctx := u.Context()
			require.NoError(t, w.AssignAdd(ctx, 1)) // 2
			require.NoError(t, w.AssignAdd(ctx, same))
			require.NoError(t, w.AssignSub(ctx, 1)) // 3
			read, err := w.Read(ctx)
			require.NoError(t, err)
			require.NoError(t, w.AssignAdd(ctx, read)) // 6
			require.NoError(t, m.Assign(ctx, each))
			require.NoError(t, m.AssignAdd(ctx, args[0])) // 2 (r + 1)
			mine, err := m.Value(ctx)
			require.NoError(t, err)
			require.Equal(t, float32(2*(u.ReplicaID()+1)), mine.Value())
			part, err := m.Read(ctx)
			require.NoError(t, err)
			require.NoError(t, m.AssignAdd(ctx, part)) // 4 (r + 1)
			whole, err := m.SaveValue(ctx)
			require.NoError(t, err)
			require.Equal(t, float32(2*n*(n+1)), whole.Value())
			return nil, nil
		}, each)
		require.NoError(t, err)
		for r, got := range strategytest.Values(t, w, n) {
			require.Equal(t, float32(6), got)
			require.Equal(t, float32(4*(r+1)), strategytest.Values(t, m, n)[r])
		}
		total, err := m.Value(ctx)
		require.NoError(t, err)
		require.Equal(t, float32(2*n*(n+1)), total.Value())
	})
}

func TestAMirroredVariablesComponentsStayEqualInAnUpdate(t *testing.T) {
	ctx := context.Background()
	s := strategytest.New(t, 2, 1)
	w, err := s.NewVariable(ctx, float32(1), strategy.VariableOptions{})
	require.NoError(t, err)
	_, err = eager.Of(s).Update(ctx, w, func(u *eager.UpdateContext, _ ...any) (any, error) {
		return nil, w.AssignAdd(u.Context(), float32(u.ReplicaID()))
	})
	require.Equal(t, errkind.ValueError, errkind.KindOf(err))
	// Components of another variable are accepted if they are equal.
	m, err := s.NewVariable(ctx, float32(1), strategy.VariableOptions{LocalWrites: true})
	require.NoError(t, err)
	for _, write := range []func(u *eager.UpdateContext) (any, error){
		func(u *eager.UpdateContext) (any, error) { return nil, w.Assign(u.Context(), m) },
		func(u *eager.UpdateContext) (any, error) { return u.Assign(m) },
	} {
		fn := func(u *eager.UpdateContext, _ ...any) (any, error) { return write(u) }
		require.NoError(t, m.Assign(ctx, 1))
		_, err := eager.Of(s).Update(ctx, w, fn)
		require.NoError(t, err)
		_, err = eager.Of(s).Update(ctx, m, func(u *eager.UpdateContext, _ ...any) (any,
			error) {
			return u.Assign(float32(u.ReplicaID()))
		})
		require.NoError(t, err)
		_, err = eager.Of(s).Update(ctx, w, fn)
		require.Equal(t, errkind.ValueError, errkind.KindOf(err))
	}
	_, err = eager.Of(s).Update(ctx, w, func(u *eager.UpdateContext, _ ...any) (any, error) {
		if u.ReplicaID() == 1 {
			return nil, w.AssignAdd(u.Context(), 1)
		}
		return nil, nil
	})
	require.ErrorIs(t, err, eager.ErrJoin)
	require.Equal(t, []any{float32(1), float32(1)}, strategytest.Values(t, w, 2))
}

func TestAnUpdateHasNoReplicaContext(t *testing.T) {
	ctx := context.Background()
	s := strategytest.On(t, plugintest.System(t, 2), strategy.Options{Replicas: 2})
	v, err := s.NewVariable(ctx, float32(1), strategy.VariableOptions{Aggregation: strategy.AggregateSum})
	require.NoError(t, err)
	for name, f := range map[string]func(rc *eager.ReplicaContext) (any, error){
		"AllReduce": func(rc *eager.ReplicaContext) (any, error) { return rc.AllReduce(strategy.Sum, float32(1)) },
		"AllGather": func(rc *eager.ReplicaContext) (any, error) { return rc.AllGather([]float32{1}, 0) },
		"MergeCall": func(rc *eager.ReplicaContext) (any, error) {
			return rc.MergeCall(func(context.Context, ...any) (any, error) { return nil, nil })
		},
	} {
		_, err := eager.Of(s).Update(ctx, v, func(u *eager.UpdateContext, _ ...any) (any, error) { return f(u.Ops()) })
		assert.ErrorIs(t, err, strategy.ErrContext, name)
	}
}

// TensorFlow writes each component's own value without comparison. A mirrored variable accepts
// equal values, even of different objects.
func TestAnUpdateOfAMirroredVariableComparesContents(t *testing.T) {
	strategytest.OnMeshes(t, contractMeshes, func(t *testing.T, s *strategy.TPUStrategy) {
		ctx, e, n := context.Background(), eager.Of(s), s.NumReplicasInSync()
		v, err := s.NewVariable(ctx, []float32{0, 0, 0, 0}, strategy.VariableOptions{})
		require.NoError(t, err)
		assign := func(u *eager.UpdateContext, args ...any) (any, error) { return u.Assign(args[0]) }
		scatter := func(u *eager.UpdateContext, args ...any) (any, error) {
			return u.Scatter(strategy.ScatterUpdate, []int32{0, 1, 2, 3}, args[0])
		}
		nan := math.Float32frombits(0x7fc00001)
		write := func(fn eager.UpdateFunc, of func(replica int) []float32) error {
			_, err := e.CallForEachReplica(ctx, func(rc *eager.ReplicaContext, _ ...any) (any, error) {
				return rc.Update(v, fn, tensors.FromValue(of(rc.ReplicaIDInSyncGroup())))
			})
			return err
		}
		for name, fn := range map[string]eager.UpdateFunc{"assign": assign, "scatter": scatter} {
			require.NoError(t, write(fn, func(int) []float32 { return []float32{3, 4, 5, nan} }), name)
			for r := range n {
				now, err := v.Local(ctx, r)
				require.NoError(t, err)
				got := now.Value().([]float32)
				require.Equal(t, []float32{3, 4, 5}, got[:3], name)
				require.Equal(t, uint32(0x7fc00001), math.Float32bits(got[3]), name)
			}
			if n == 1 {
				continue
			}
			for what, of := range map[string]func(replica int) []float32{
				"a number": func(replica int) []float32 { return []float32{3, 4, 5, float32(replica)} },
				"the sign of 0": func(replica int) []float32 {
					return []float32{3, 4, 5,
						float32(math.Copysign(0, float64(-replica%2)))}
				},
				"the bits of NaN": func(replica int) []float32 {
					return []float32{3, 4, 5, math.Float32frombits(0x7fc00001 + uint32(replica))}
				},
			} {
				err := write(fn, of)
				require.Equal(t, errkind.ValueError, errkind.KindOf(err), "%s differs: %s: %v", what, name, err)
			}
		}
		// Components of a value on the devices are compared as well.
		same := make([]any, n)
		for r := range same {
			same[r] = []float32{1, 2, 3, 4}
		}
		parts, err := s.PerReplica(ctx, same, logical.Annotation{})
		require.NoError(t, err)
		_, err = e.Update(ctx, v, assign, parts)
		require.NoError(t, err)
	})
}
