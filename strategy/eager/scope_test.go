package eager_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/internal/engine"
	"github.com/tpustrategy/tpustrategy/internal/engine/mode"
	"github.com/tpustrategy/tpustrategy/internal/test/strategytest"
	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/strategy/eager"
)

func TestAContextSaysWhoseCodeRuns(t *testing.T) {
	outside := context.Background()
	s, other := strategytest.New(t, 2, 1), strategytest.New(t, 1, 1)
	m := engine.Internal(s)
	scope, err := eager.Of(s).Scope(outside)
	require.NoError(t, err)
	again, err := eager.Of(s).Scope(scope)
	require.NoError(t, err, "a scope within its own")
	otherScope, err := eager.Of(other).Scope(outside)
	require.NoError(t, err)
	replica := mode.With(scope, mode.Mode{Strategy: s, Replica: true, Update: -1})
	update := mode.With(scope, mode.Mode{Strategy: s, Update: 1})
	type key struct{}
	v := strategytest.OK(s.NewVariable(scope, float32(1), strategy.VariableOptions{}))
	for name, c := range map[string]struct {
		ctx    context.Context
		of     *strategy.TPUStrategy
		cross  bool
		update int
		// crosses is the expected error of calls that need cross-replica code, and requires of
		// calls that need the scope.
		crosses, requires error
	}{
		"outside":      {ctx: outside, update: -1, requires: strategy.ErrContext},
		"in the scope": {ctx: scope, of: s, cross: true, update: -1},
		"in it twice":  {ctx: again, of: s, cross: true, update: -1},
		"derived":      {ctx: context.WithValue(scope, key{}, 1), of: s, cross: true, update: -1},
		"a replica":    {ctx: replica, of: s, update: -1, crosses: strategy.ErrContext},
		"an update":    {ctx: update, of: s, cross: true, update: 1},
		"another's scope": {ctx: otherScope, of: other, cross: true, update: -1, crosses: strategy.ErrOtherStrategy,
			requires: strategy.ErrOtherStrategy},
	} {
		got, ok := eager.FromContext(c.ctx)
		assert.Same(t, c.of, got, name)
		assert.Equal(t, c.of != nil, ok, name)
		assert.Equal(t, c.cross, eager.InCrossReplicaContext(c.ctx), name)
		assert.Equal(t, !c.cross, eager.InReplicaContext(c.ctx), name)
		number, updating := eager.UpdateReplicaID(c.ctx)
		assert.Equal(t, c.update >= 0, updating, name)
		assert.Equal(t, max(c.update, 0), number, name)
		_, scoping := eager.Of(s).Scope(c.ctx)
		assert.ErrorIs(t, scoping, c.crosses, "%s: Scope", name)
		assert.ErrorIs(t, m.CheckCrossReplica(c.ctx, "reduce"), c.crosses, "%s: RequireCross", name)
		assert.ErrorIs(t, m.CheckEager(c.ctx, "reduce", ""), c.crosses, "%s: RequireEager", name)
		_, beside := eager.Of(s).ColocateVarsWith(c.ctx, v)
		assert.ErrorIs(t, beside, c.requires, "%s: ColocateVarsWith", name)
	}
	_, err = eager.Of(s).ColocateVarsWith(outside, v)
	assert.EqualError(t, err, "strategy: colocate: called outside the strategy's scope; pass the context that Scope "+
		"returns, or that of replica code")
	assert.EqualError(t, m.CheckCrossReplica(replica, "reduce"),
		"strategy: reduce: called in a replica's code; call it before or after, or inside MergeCall")
	assert.EqualError(t, m.CheckCrossReplica(otherScope, "reduce"),
		"strategy: mixing strategies: reduce: the scope of the call belongs to another strategy; copy values through "+
			"the host")
}
