package strategy_test

import (
	"context"
	"testing"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/internal/test/strategytest"
	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/strategy/eager"
)

func TestAComponentIsAReferenceToOneReplicasPart(t *testing.T) {
	ctx := context.Background()
	s := strategytest.New(t, 2, 1)
	// The shapes differ: each component has its own shape.
	x, err := s.PerReplica(ctx, []any{[]float32{1}, []float32{2, 3}}, logical.Annotation{})
	require.NoError(t, err)
	v, err := s.NewVariable(ctx, int32(5), strategy.VariableOptions{Name: "v"})
	require.NoError(t, err)
	for r, want := range [][]float32{{1}, {2, 3}} {
		c, err := eager.Of(s).Component(x, r)
		require.NoError(t, err)
		again, err := eager.Of(s).Component(x, r)
		require.NoError(t, err)
		assert.True(t, c == again, "references to one part are equal")
		assert.Equal(t, r, c.Replica())
		assert.Same(t, x, c.Value())
		assert.Nil(t, c.Variable())
		assert.Equal(t, shapes.Make(dtypes.Float32, r+1), c.Shape())
		got, err := c.Local(ctx)
		require.NoError(t, err)
		assert.Equal(t, want, got.Value())

		of, err := eager.Of(s).Component(v, r)
		require.NoError(t, err)
		assert.Nil(t, of.Value())
		assert.Same(t, v, of.Variable())
		assert.Equal(t, shapes.Make(dtypes.Int32), of.Shape())
		assert.Equal(t, []string{"v", "v/replica_1"}[r], of.String())
	}
	for _, r := range []int{-1, 2} {
		_, err := eager.Of(s).Component(v, r)
		assert.Equal(t, errkind.ValueError, errkind.KindOf(err), "%v", err)
		_, err = eager.Of(s).Component(x, r)
		assert.Equal(t, errkind.ValueError, errkind.KindOf(err), "%v", err)
	}
	// A component owns nothing: its value determines whether it is open.
	c, err := eager.Of(s).Component(x, 1)
	require.NoError(t, err)
	assert.Contains(t, c.String(), "[1]")
	require.NoError(t, x.Close())
	_, err = c.Local(ctx)
	assert.ErrorIs(t, err, strategy.ErrClosed)
	assert.Equal(t, 1, c.Replica())
}
