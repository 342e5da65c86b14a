package eager_test

import (
	"context"
	"errors"
	"testing"

	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/core/tensors"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/internal/test/strategytest"
	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/strategy/eager"
)

var contractMeshes = [][2]int{{1, 1}, {8, 1}, {4, 2}, {2, 4}}

// counted returns a sync-on-read variable with the components 1, 2, ..., and their sum.
func counted(t *testing.T, s *strategy.TPUStrategy) (v *strategy.Variable, sum float32) {
	t.Helper()
	ctx := context.Background()
	v, err := s.NewVariable(ctx, float32(0), strategy.VariableOptions{Synchronization: strategy.OnRead,
		Aggregation: strategy.AggregateSum})
	require.NoError(t, err)
	_, err = eager.Of(s).CallForEachReplica(ctx, func(rc *eager.ReplicaContext, _ ...any) (any, error) {
		return rc.Assign(v, float32(rc.ReplicaIDInSyncGroup()+1))
	})
	require.NoError(t, err)
	n := float32(s.NumReplicasInSync())
	return v, n * (n + 1) / 2
}

func numbered(t *testing.T, s *strategy.TPUStrategy) *strategy.PerReplica {
	t.Helper()
	values := make([]any, s.NumReplicasInSync())
	for r := range values {
		values[r] = float32(r + 1)
	}
	x, err := s.PerReplica(context.Background(), values, logical.Annotation{})
	require.NoError(t, err)
	return x
}

// As in TensorFlow's TPUStrategy, a PerReplica is not a tensor on the host, and a variable is its
// value across replicas.
func TestTheHostOfANonSlotUpdateHasOneValueForAllReplicas(t *testing.T) {
	strategytest.OnMeshes(t, contractMeshes, func(t *testing.T, s *strategy.TPUStrategy) {
		ctx, e, n := context.Background(), eager.Of(s), s.NumReplicasInSync()
		parts := numbered(t, s)
		summed, sum := counted(t, s)
		double := s.Function(func(_ *strategy.ReplicaContext, in []*graph.Node) []*graph.Node {
			return []*graph.Node{graph.Add(in[0], in[0])}
		}, strategy.FunctionOptions{Name: "double"})
		call := func(u *eager.UpdateContext, x any) (any, error) {
			out, err := u.Ops().Call(double, x)
			if err != nil {
				return nil, err
			}
			return out[0], nil
		}
		ops := map[string]struct {
			of   func(u *eager.UpdateContext, x any) (any, error)
			want func(x float32) float32
		}{
			"add": {func(u *eager.UpdateContext, x any) (any, error) { return u.Ops().Add(x, 10) },
				func(x float32) float32 { return x + 10 }},
			"sub": {func(u *eager.UpdateContext, x any) (any, error) { return u.Ops().Sub(float32(3), x) },
				func(x float32) float32 { return 3 - x }},
			"call": {call, func(x float32) float32 { return 2 * x }},
		}
		host := func(fn eager.UpdateFunc, args ...any) (any, error) {
			return e.UpdateNonSlot(ctx, e.NonSlotDevices(), fn, args...)
		}
		for name, op := range ops {
			apply := func(u *eager.UpdateContext, args ...any) (any, error) { return op.of(u, args[0]) }
			got, err := host(apply, parts)
			if n > 1 {
				assert.Equal(t, errkind.ValueError, errkind.KindOf(err), "%s: %v, %v", name, got, err)
				assert.ErrorContains(t, err, parts.String(), name)
				assert.ErrorContains(t, err, "reduce it first", name)
			} else if assert.NoError(t, err, name) {
				assert.Equal(t, op.want(1), number(t, ctx, got), name)
			}
			last, err := e.Component(parts, n-1)
			require.NoError(t, err)
			for what, x := range map[string]struct {
				arg   any
				value float32
			}{"a variable": {summed, sum}, "one part": {last, float32(n)}, "a tensor": {tensors.FromScalar(float32(4)), 4}} {
				got, err := host(apply, x.arg)
				if assert.NoError(t, err, "%s of %s", name, what) {
					assert.Equal(t, op.want(x.value), number(t, ctx, got), "%s of %s", name, what)
				}
			}
		}
		for name, read := range map[string]func(u *eager.UpdateContext) (any, error){
			"ops":    func(u *eager.UpdateContext) (any, error) { return u.Ops().Read(summed) },
			"method": func(u *eager.UpdateContext) (any, error) { return summed.Read(u.Context()) },
		} {
			got, err := host(func(u *eager.UpdateContext, _ ...any) (any, error) { return read(u) })
			require.NoError(t, err, name)
			assert.Equal(t, sum, number(t, ctx, got), name)
		}
	})
}

func TestTheHostOfANonSlotUpdateWritesAllComponents(t *testing.T) {
	strategytest.OnMeshes(t, contractMeshes, func(t *testing.T, s *strategy.TPUStrategy) {
		ctx, e, n := context.Background(), eager.Of(s), s.NumReplicasInSync()
		parts := numbered(t, s)
		summed, _ := counted(t, s)
		mirrored, err := s.NewVariable(ctx, []float32{1, 2}, strategy.VariableOptions{})
		require.NoError(t, err)
		host := func(fn eager.UpdateFunc) (any, error) { return e.UpdateNonSlot(ctx, e.NonSlotDevices(), fn) }
		got, err := host(func(u *eager.UpdateContext, _ ...any) (any, error) { return u.Ops().Assign(summed, float32(8)) })
		require.NoError(t, err)
		assert.Equal(t, float32(8), number(t, ctx, got), "a total, of which each component holds its part")
		first, err := summed.Local(ctx, 0)
		require.NoError(t, err)
		assert.Equal(t, 8/float32(n), first.Value())
		_, err = host(func(u *eager.UpdateContext, _ ...any) (any, error) { return u.Ops().AssignAdd(summed, float32(1)) })
		assert.Equal(t, errkind.ValueError, errkind.KindOf(err))
		_, err = host(func(u *eager.UpdateContext, _ ...any) (any, error) {
			if _, err := u.Ops().AssignAdd(mirrored, []float32{1, 1}); err != nil {
				return nil, err
			}
			if _, err := u.Ops().Update(mirrored, func(u *eager.UpdateContext, args ...any) (any,
				error) {
				return u.AssignSub(args[0])
			}, []float32{0, 3}); err != nil {
				return nil, err
			}
			return u.Ops().Scatter(strategy.ScatterAdd, mirrored, []int32{0}, []float32{10})
		})
		require.NoError(t, err)
		for r := range n {
			now, err := mirrored.Local(ctx, r)
			require.NoError(t, err)
			assert.Equal(t, []float32{12, 0}, now.Value())
		}
		_, err = host(func(u *eager.UpdateContext, _ ...any) (any, error) { return u.Ops().Assign(summed, parts) })
		assert.Equal(t, errkind.TypeError, errkind.KindOf(err), "%v", err)
	})
}

// The merge call of a compiled step has the same rules.
func TestANonSlotUpdateOfACompiledStepHasOneValueForAllReplicas(t *testing.T) {
	strategytest.OnMeshes(t, contractMeshes, func(t *testing.T, s *strategy.TPUStrategy) {
		ctx, e, n := context.Background(), eager.Of(s), s.NumReplicasInSync()
		parts := numbered(t, s)
		summed, sum := counted(t, s)
		total, err := s.NewVariable(ctx, float32(0), strategy.VariableOptions{})
		require.NoError(t, err)
		run := func(update eager.UpdateFunc, args func(x *eager.MergeValue) []any) ([]*strategy.PerReplica, error) {
			return s.Function(func(rc *strategy.ReplicaContext, in []*graph.Node) []*graph.Node {
				return eager.MergeCall(rc, func(mc *eager.MergeContext, merged ...*eager.MergeValue) []*eager.MergeValue {
					out, err := e.UpdateNonSlot(mc.Context(), e.NonSlotDevices(), update, args(merged[0])...)
					if err != nil {
						panic(err)
					}
					return []*eager.MergeValue{out.(*eager.MergeValue)}
				}, in[0])
			}, strategy.FunctionOptions{}).Run(ctx, parts)
		}
		value := func(out []*strategy.PerReplica, err error) any {
			require.NoError(t, err)
			host, err := out[0].Local(ctx, n-1)
			require.NoError(t, err)
			return host.Value()
		}
		add := func(u *eager.UpdateContext, args ...any) (any, error) { return u.Ops().Add(args[0], 10) }
		first := func(_ *eager.UpdateContext, args ...any) (any, error) { return args[0], nil }
		read := func(u *eager.UpdateContext, args ...any) (any, error) {
			return u.Ops().Read(args[0].(*strategy.Variable))
		}
		given := func(x *eager.MergeValue) []any { return []any{x} }
		variable := func(*eager.MergeValue) []any { return []any{summed} }
		out, err := run(add, given)
		if n > 1 {
			assert.Equal(t, errkind.ValueError, errkind.KindOf(err), "%v", err)
			assert.ErrorContains(t, err, "PerReplica(")
			assert.ErrorContains(t, err, "reduce it first")
		} else {
			assert.Equal(t, float32(11), value(out, err))
		}
		assert.Equal(t, float32(n), value(run(first, given)), "an argument comes as it is")
		assert.Equal(t, sum+10, value(run(add, variable)))
		assert.Equal(t, sum, value(run(read, variable)))
		step := s.Function(func(rc *strategy.ReplicaContext, in []*graph.Node) []*graph.Node {
			return eager.MergeCall(rc, func(mc *eager.MergeContext, merged ...*eager.MergeValue) []*eager.MergeValue {
				_, err := e.UpdateNonSlot(mc.Context(), e.NonSlotDevices(), func(u *eager.UpdateContext, args ...any) (any, error) {
					return u.Ops().AssignAdd(total, args[0])
				}, mc.Reduce(strategy.Sum, merged[0]))
				if err != nil {
					panic(err)
				}
				return nil
			}, in[0])
		}, strategy.FunctionOptions{})
		for range 3 {
			_, err = step.Run(ctx, parts)
			require.NoError(t, err)
		}
		now, err := total.Value(ctx)
		require.NoError(t, err)
		assert.Equal(t, 3*sum, now.Value(), "once for each run")
	})
}

// Go state would change only once, while the step is traced.
func TestANonSlotUpdateOfACompiledStepRefusesGoState(t *testing.T) {
	strategytest.OnMeshes(t, contractMeshes, func(t *testing.T, s *strategy.TPUStrategy) {
		e := eager.Of(s)
		steps := 0
		for name, update := range map[string]eager.UpdateFunc{
			"no result":  func(*eager.UpdateContext, ...any) (any, error) { steps++; return nil, nil },
			"the state":  func(*eager.UpdateContext, ...any) (any, error) { steps++; return steps, nil },
			"with nodes": func(_ *eager.UpdateContext, args ...any) (any, error) { steps += len(args); return nil, nil },
		} {
			for group, call := range map[string]func(ctx context.Context, args ...any) error{
				"grouped": func(ctx context.Context, args ...any) error {
					return strategytest.Err(e.UpdateNonSlot(ctx, e.NonSlotDevices(), update, args...))
				},
				"each": func(ctx context.Context, args ...any) error {
					return strategytest.Err(e.UpdateNonSlotEach(ctx, e.NonSlotDevices(), update, args...))
				},
			} {
				_, err := s.Function(func(rc *strategy.ReplicaContext, in []*graph.Node) []*graph.Node {
					return eager.MergeCall(rc, func(mc *eager.MergeContext, merged ...*eager.MergeValue) []*eager.MergeValue {
						if err := call(mc.Context(), merged[0]); err != nil {
							panic(err)
						}
						return merged
					}, in[0])
				}, strategy.FunctionOptions{}).Run(context.Background(), float32(1))
				var wrong *strategy.Error
				require.ErrorIs(t, err, strategy.ErrContext, "%s, %s: %v", name, group, err)
				require.True(t, errors.As(err, &wrong), "%s, %s: %v", name, group, err)
				assert.Contains(t, wrong.Hint, "variable")
			}
		}
	})
}
