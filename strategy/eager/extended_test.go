package eager_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/input"
	"github.com/tpustrategy/tpustrategy/internal/test/plugintest"
	"github.com/tpustrategy/tpustrategy/internal/test/strategytest"
	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/strategy/eager"
)

func TestEagerCodeRefusesWhatIsAnotherStrategys(t *testing.T) {
	ctx := context.Background()
	sys := plugintest.System(t, 4)
	make := func(o strategy.Options) *strategy.TPUStrategy {
		s := strategytest.On(t, sys, o)
		return s
	}
	s := make(strategy.Options{Replicas: 4})
	v, err := s.NewVariable(ctx, float32(1), strategy.VariableOptions{Aggregation: strategy.AggregateMean})
	require.NoError(t, err)
	// These options use only some of the strategy's devices. Values of strategies with all devices
	// are accepted.
	for _, o := range []strategy.Options{{Replicas: 2}, {Replicas: 1, LogicalDevices: 2}, {Replicas: 3}} {
		other := make(o)
		var all []any
		for r := range o.Replicas {
			all = append(all, float32(r))
		}
		value, err := other.PerReplica(ctx, all, logical.Annotation{})
		require.NoError(t, err)
		theirs, err := other.NewVariable(ctx, float32(7), strategy.VariableOptions{Aggregation: strategy.AggregateSum})
		require.NoError(t, err)
		part, err := eager.Of(other).Component(value, 0)
		require.NoError(t, err)
		for _, x := range []any{value, theirs, part} {
			for name, f := range map[string]eager.ReplicaFunc{
				"AllReduce": func(rc *eager.ReplicaContext, _ ...any) (any, error) { return rc.AllReduce(strategy.Sum, x) },
				"Add":       func(rc *eager.ReplicaContext, _ ...any) (any, error) { return rc.Add(x, float32(1)) },
				"Assign":    func(rc *eager.ReplicaContext, _ ...any) (any, error) { return rc.Assign(v, x) },
			} {
				_, err := eager.Of(s).CallForEachReplica(ctx, f)
				assert.ErrorIs(t, err, strategy.ErrOtherStrategy, "%s of %v", name, x)
			}
			_, err := eager.Of(s).Update(ctx, v, func(u *eager.UpdateContext, _ ...any) (any, error) { return u.AssignAdd(x) })
			assert.Error(t, err)
		}
	}
	got, err := v.Value(ctx)
	require.NoError(t, err)
	assert.Equal(t, float32(1), got.Value())
}

// A variable belongs to the strategy whose method makes it. In the scope of another strategy it is
// not made.
func TestVariableCreatedInScopeSaysWhoseAVariableIs(t *testing.T) {
	ctx := context.Background()
	sys := plugintest.System(t, 2)
	s, other := strategytest.On(t, sys, strategy.Options{Replicas: 2}), strategytest.On(t, sys,
		strategy.Options{Replicas: 1})
	scope, err := eager.Of(s).Scope(ctx)
	require.NoError(t, err)
	inScope, err := s.NewVariable(scope, float32(1), strategy.VariableOptions{})
	require.NoError(t, err)
	without, err := s.NewVariable(ctx, float32(1), strategy.VariableOptions{})
	require.NoError(t, err)
	theirs, err := other.NewVariable(ctx, float32(1), strategy.VariableOptions{})
	require.NoError(t, err)
	made := []*strategy.Variable{inScope, without}
	_, err = eager.Of(s).CallForEachReplica(ctx, func(rc *eager.ReplicaContext, _ ...any) (any, error) {
		v, err := rc.NewVariable(float32(1), strategy.VariableOptions{})
		made = append(made, v)
		return nil, err
	})
	require.NoError(t, err)
	for i, v := range made {
		assert.True(t, eager.Of(s).VariableCreatedInScope(v), i)
		assert.False(t, eager.Of(other).VariableCreatedInScope(v), i)
	}
	assert.False(t, eager.Of(s).VariableCreatedInScope(theirs))
	assert.False(t, eager.Of(s).VariableCreatedInScope(nil))
	_, err = other.NewVariable(scope, float32(1), strategy.VariableOptions{})
	assert.ErrorIs(t, err, strategy.ErrOtherStrategy, "in the scope of another strategy")
}

func TestReplicaCodeColocatesVariablesAndReadsThem(t *testing.T) {
	ctx := context.Background()
	strategytest.OnMeshes(t, strategytest.Meshes, func(t *testing.T, s *strategy.TPUStrategy) {
		e, n := eager.Of(s), s.NumReplicasInSync()
		at, err := e.LogicalDevice(ctx, s.NumLogicalDevices()-1)
		require.NoError(t, err)
		v, err := s.NewVariable(at, float32(4), strategy.VariableOptions{Name: "v"})
		require.NoError(t, err)
		summed, err := s.NewVariable(ctx, float32(4), strategy.VariableOptions{Name: "summed",
			Synchronization: strategy.OnRead, Aggregation: strategy.AggregateSum})
		require.NoError(t, err)
		made := map[*strategy.Variable]bool{}
		out, err := e.CallForEachReplica(ctx, func(rc *eager.ReplicaContext, _ ...any) (any, error) {
			beside, err := e.ColocateVarsWith(rc.Context(), v)
			if err != nil {
				return nil, err
			}
			placed, ok := eager.ReplicaContextOf(beside)
			require.True(t, ok)
			x, err := placed.NewVariable(float32(1), strategy.VariableOptions{Name: "x"})
			if err != nil {
				return nil, err
			}
			made[x] = true
			one, err := e.ReadVar(rc.Context(), v)
			if err != nil {
				return nil, err
			}
			total, err := e.ReadVar(rc.Context(), summed)
			return []any{one, total}, err
		})
		require.NoError(t, err)
		require.Len(t, made, 1)
		for x := range made {
			assert.Equal(t, v.Devices(), x.Devices())
		}
		for i, want := range []float64{4, float64(4 * n)} {
			got, err := out.([]any)[i].(*strategy.Mirrored).Float64(ctx)
			require.NoError(t, err)
			assert.Equal(t, want, got)
		}
		_, err = e.ColocateVarsWith(ctx, v)
		assert.ErrorIs(t, err, strategy.ErrContext, "outside the scope")
	})
}

// The kinds of results are those that TensorFlow 2.21 returns.
func TestReadVarInReplicaCodeOfMirroredStrategy(t *testing.T) {
	ctx := context.Background()
	s := strategytest.On(t, plugintest.System(t, 2), strategy.Options{Replicas: 2, Semantics: strategy.TensorFlowMirrored})
	e := eager.Of(s)
	read := func(o strategy.VariableOptions) error {
		v, err := s.NewVariable(ctx, float32(4), o)
		require.NoError(t, err)
		_, err = e.CallForEachReplica(ctx, func(rc *eager.ReplicaContext, _ ...any) (any,
			error) {
			return e.ReadVar(rc.Context(), v)
		})
		return err
	}
	assert.NoError(t, read(strategy.VariableOptions{}))
	assert.ErrorIs(t, read(strategy.VariableOptions{Synchronization: strategy.OnRead, Aggregation: strategy.AggregateSum}),
		strategy.ErrContext)
	assert.Equal(t, errkind.ValueError, errkind.KindOf(read(strategy.VariableOptions{Synchronization: strategy.OnRead})))
}

func TestBroadcastOfAComponentIsMirrored(t *testing.T) {
	ctx := context.Background()
	sys := plugintest.System(t, 4)
	for _, semantics := range []strategy.Semantics{strategy.OwnSemantics, strategy.TensorFlowMirrored,
		strategy.TensorFlowTPU} {
		s := strategytest.On(t, sys, strategy.Options{Replicas: 2, LogicalDevices: 2, Semantics: semantics})
		e := eager.Of(s)
		x, err := s.PerReplica(ctx, []any{[]float32{1, 2}, []float32{3, 4}}, logical.Annotation{})
		require.NoError(t, err)
		v, err := s.NewVariable(ctx, []float32{3, 4}, strategy.VariableOptions{Annotation: logical.SplitInto(2)})
		require.NoError(t, err)
		part, err := e.Component(x, 1)
		require.NoError(t, err)
		of, err := e.Component(v, 0)
		require.NoError(t, err)
		for _, c := range []eager.Component{part, of} {
			for _, to := range []eager.Destination{eager.To(v), eager.To(x), eager.ToDevices(e.WorkerDevices(ctx)[0])} {
				out, err := e.BroadcastTo(ctx, c, to)
				require.NoError(t, err)
				if semantics == strategy.TensorFlowTPU {
					assert.Equal(t, c, out, "unchanged, as in TensorFlow")
					continue
				}
				require.IsType(t, &strategy.Mirrored{}, out)
				got, err := out.(*strategy.Mirrored).Value(ctx)
				require.NoError(t, err)
				assert.Equal(t, []float32{3, 4}, got.Value())
			}
		}
		_, err = e.BroadcastTo(ctx, eager.Component{}, eager.To(v))
		assert.Equal(t, semantics != strategy.TensorFlowTPU, err != nil)
	}
}

func TestADatasetOfHostArraysHasStrings(t *testing.T) {
	ctx := context.Background()
	s := strategytest.New(t, 1, 1)
	words := input.Vector("e", "f")
	ds, err := eager.Of(s).MakeNumpyDataset(map[string]any{
		"word": []string{"a", "b"}, "pair": [][]string{{"a", "b"}, {"c", "d"}}, "n": []int64{1, 2}, "given": words,
	})
	require.NoError(t, err)
	var got []string
	for e, err := range ds.All(ctx) {
		require.NoError(t, err)
		for i, key := range e.Keys() {
			got = append(got, fmt.Sprint(key, e.At(i).Leaf().Flat()))
		}
	}
	assert.Equal(t, []string{"given[e]", "n[1]", "pair[a b]", "word[a]", "given[f]", "n[2]", "pair[c d]", "word[b]"}, got)
	for _, wrong := range []any{[][]string{{"a"}, {"b", "c"}}, "a", []any{[]string{"a"}, []int64{1, 2}}} {
		_, err := eager.Of(s).MakeNumpyDataset(wrong)
		assert.Error(t, err, "%v", wrong)
	}
}
