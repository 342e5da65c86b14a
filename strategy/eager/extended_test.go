package eager_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

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
	// These lack devices of the strategy; one that has them all is read, see the table
	// of what is taken where.
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
	s, other := strategytest.On(t, sys, strategy.Options{Replicas: 2}), strategytest.On(t, sys, strategy.Options{Replicas: 1})
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
