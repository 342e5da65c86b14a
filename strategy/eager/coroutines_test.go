package eager_test

import (
	"context"
	"errors"
	"testing"

	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/core/tensors"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/internal/test/strategytest"
	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/strategy/eager"
)

func TestMergeCallJoinsTheReplicas(t *testing.T) {
	ctx := context.Background()
	strategytest.OnMeshes(t, strategytest.Meshes, func(t *testing.T, s *strategy.TPUStrategy) {
		n := s.NumReplicasInSync()
		// TensorFlow's example: three + id, summed across replicas.
		out, err := eager.Of(s).CallForEachReplica(ctx, func(rc *eager.ReplicaContext, args ...any) (any, error) {
			x, err := rc.Add(tensors.FromScalar(int32(3)), int32(rc.ReplicaIDInSyncGroup()))
			if err != nil {
				return nil, err
			}
			sum, err := rc.MergeCall(func(ctx context.Context, args ...any) (any, error) {
				require.True(t, eager.InCrossReplicaContext(ctx))
				return eager.Of(s).Reduce(ctx, strategy.Sum, args[0])
			}, x)
			if err != nil {
				return nil, err
			}
			return rc.Add(sum, int32(rc.ReplicaIDInSyncGroup()))
		})
		require.NoError(t, err)
		sum := int32(0)
		for r := range n {
			sum += 3 + int32(r)
		}
		local, err := eager.Of(s).LocalResultsOf(out)
		require.NoError(t, err)
		require.Len(t, local, n)
		for r, c := range local {
			x, err := c.(eager.Component).Local(ctx)
			require.NoError(t, err)
			require.Equal(t, sum+int32(r), x.Value())
		}
	})
}

func TestReplicasThatDoNotMeetFailTogether(t *testing.T) {
	ctx := context.Background()
	s := strategytest.New(t, 3, 1)
	v, err := s.NewVariable(ctx, float32(1), strategy.VariableOptions{Aggregation: strategy.AggregateSum})
	require.NoError(t, err)
	merge := func(rc *eager.ReplicaContext) error {
		_, err := rc.MergeCall(func(context.Context, ...any) (any, error) { return nil, nil })
		return err
	}
	mine := errors.New("mine")
	for name, c := range map[string]struct {
		fn    eager.ReplicaFunc
		check func(t *testing.T, err error)
	}{
		"some do not call": {func(rc *eager.ReplicaContext, _ ...any) (any, error) {
			if rc.ReplicaIDInSyncGroup() == 1 {
				return nil, nil
			}
			return nil, merge(rc)
		}, func(t *testing.T, err error) {
			require.ErrorIs(t, err, eager.ErrJoin)
			require.ErrorContains(t, err, "replica 0 at MergeCall, replica 1 at the end, replica 2 at MergeCall")
		}},
		"different calls": {func(rc *eager.ReplicaContext, _ ...any) (any, error) {
			if rc.ReplicaIDInSyncGroup() == 2 {
				return rc.AssignAdd(v, float32(1))
			}
			return nil, merge(rc)
		}, func(t *testing.T, err error) { require.ErrorIs(t, err, eager.ErrJoin) }},
		"one fails": {func(rc *eager.ReplicaContext, _ ...any) (any, error) {
			if rc.ReplicaIDInSyncGroup() == 1 {
				return nil, mine
			}
			return nil, merge(rc)
		}, func(t *testing.T, err error) { require.ErrorIs(t, err, mine) }},
		"one panics": {func(rc *eager.ReplicaContext, _ ...any) (any, error) {
			if rc.ReplicaIDInSyncGroup() == 1 {
				panic(mine)
			}
			return nil, merge(rc)
		}, func(t *testing.T, err error) {
			require.ErrorIs(t, err, mine)
			require.ErrorAs(t, err, new(*errkind.PanicError))
		}},
		"the merge function panics": {func(rc *eager.ReplicaContext, _ ...any) (any, error) {
			return rc.MergeCall(func(context.Context, ...any) (any, error) { panic("merge") })
		}, func(t *testing.T, err error) { require.ErrorAs(t, err, new(*errkind.PanicError)) }},
		"the replica context in its merge function": {func(rc *eager.ReplicaContext, _ ...any) (any, error) {
			return rc.MergeCall(func(context.Context, ...any) (any, error) { return nil, merge(rc) })
		}, func(t *testing.T, err error) { require.ErrorIs(t, err, strategy.ErrContext) }},
		"errors are the last word": {func(rc *eager.ReplicaContext, _ ...any) (any, error) {
			for range 5 { // a function that continues after errors still ends
				_ = merge(rc)
				if rc.ReplicaIDInSyncGroup() == 0 {
					return nil, nil
				}
			}
			return nil, nil
		}, func(t *testing.T, err error) { require.ErrorIs(t, err, eager.ErrJoin) }},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := eager.Of(s).CallForEachReplica(ctx, c.fn)
			c.check(t, err)
			out, err := eager.Of(s).CallForEachReplica(ctx, func(rc *eager.ReplicaContext, _ ...any) (any, error) {
				return 7.0,
					nil
			})
			require.NoError(t, err)
			require.Equal(t, 7.0, out)
		})
	}
	got, err := v.Value(ctx)
	require.NoError(t, err)
	require.Equal(t, float32(1), got.Value())
}

// The replicas make the same joined call with different objects of one name. Without the check, the
// object of replica 0 would receive the calls of all replicas.
func TestJoinedCallsOnDifferentObjectsOfOneNameFail(t *testing.T) {
	ctx := context.Background()
	s := strategytest.New(t, 2, 1)
	same := strategy.VariableOptions{Name: "same", Aggregation: strategy.AggregateMean}
	var v [2]*strategy.Variable
	var f [2]*strategy.Function
	for i := range v {
		v[i] = strategytest.OK(s.NewVariable(ctx, []float32{1, 2}, same))
		f[i] = s.Function(func(_ *strategy.ReplicaContext, in []*graph.Node) []*graph.Node { return in },
			strategy.FunctionOptions{Name: "same"})
	}
	x := tensors.FromValue([]float32{1, 1})
	for name, call := range map[string]func(rc *eager.ReplicaContext, r int) error{
		"Assign":     func(rc *eager.ReplicaContext, r int) error { return strategytest.Err(rc.Assign(v[r], x)) },
		"AssignAdd":  func(rc *eager.ReplicaContext, r int) error { return strategytest.Err(rc.AssignAdd(v[r], x)) },
		"AssignSub":  func(rc *eager.ReplicaContext, r int) error { return strategytest.Err(rc.AssignSub(v[r], x)) },
		"Read":       func(rc *eager.ReplicaContext, r int) error { return strategytest.Err(rc.Read(v[r])) },
		"ReadAcross": func(rc *eager.ReplicaContext, r int) error { return strategytest.Err(rc.ReadAcross(v[r])) },
		"Scatter": func(rc *eager.ReplicaContext, r int) error {
			return strategytest.Err(rc.Scatter(strategy.ScatterAdd, v[r], []int32{0}, []float32{1}))
		},
		"Update": func(rc *eager.ReplicaContext, r int) error {
			return strategytest.Err(rc.Update(v[r], func(u *eager.UpdateContext, args ...any) (any, error) { return nil, nil }))
		},
		"Call": func(rc *eager.ReplicaContext, r int) error { return strategytest.Err(rc.Call(f[r], x)) },
		"NewVariable": func(rc *eager.ReplicaContext, r int) error {
			opts := same
			opts.LocalWrites = r == 1
			return strategytest.Err(rc.NewVariable(x, opts))
		},
		"AllReduce": func(rc *eager.ReplicaContext, r int) error {
			return strategytest.Err(rc.AllReduce([]strategy.ReduceOp{strategy.Sum, strategy.Mean}[r], x))
		},
		"AllGather": func(rc *eager.ReplicaContext, r int) error {
			return strategytest.Err(rc.AllGather(tensors.FromValue([][]float32{{1}}), r))
		},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := eager.Of(s).CallForEachReplica(ctx, func(rc *eager.ReplicaContext, _ ...any) (any, error) {
				return nil, call(rc, rc.ReplicaIDInSyncGroup())
			})
			require.ErrorIs(t, err, eager.ErrJoin)
			require.ErrorContains(t, err, "replicas 0 and 1 use different variables, functions or options in the same call")
			_, err = eager.Of(s).CallForEachReplica(ctx, func(rc *eager.ReplicaContext, _ ...any) (any, error) {
				return nil,
					call(rc, 0)
			})
			require.NoError(t, err)
		})
	}
}
