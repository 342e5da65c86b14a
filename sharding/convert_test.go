package sharding_test

import (
	"errors"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/sharding"
)

func TestSpecAndOpShardingAreEquivalent(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 8))
	for range 500 {
		m := randomMesh(t, rng)
		spec, shape := randomSpec(t, rng, m)
		op, err := spec.OpSharding(m)
		require.NoError(t, err)
		for device := range m.Size() {
			want, err := sharding.IndexRanges(m, spec, shape, device)
			require.NoError(t, err)
			got, holds, err := op.IndexRanges(shape, device)
			require.NoError(t, err)
			require.True(t, holds)
			require.Equal(t, want, got, "%v %v %v", m, spec, op)
		}
		back, err := sharding.SpecOf(m, op, spec.Rank())
		require.NoError(t, err)
		again, err := back.OpSharding(m)
		require.NoError(t, err)
		require.Equal(t, op.String(), again.String(), "%v: %v became %v", m, spec, back)
		parsed, err := sharding.ParseOpSharding(op.String())
		require.NoError(t, err)
		require.True(t, op.Equal(parsed))
		wire, err := sharding.ParseOpShardingProto(op.WithDeviceList().MarshalProto())
		require.NoError(t, err)
		require.True(t, op.Equal(wire))
	}
}

func TestSpecOpShardingUsesMinimalIota(t *testing.T) {
	m := mesh(t, sharding.Axis{Name: "a", Size: 2}, sharding.Axis{Name: "one", Size: 1}, sharding.Axis{Name: "b", Size: 2},
		sharding.Axis{Name: "c", Size: 4})
	for _, test := range []struct {
		spec sharding.Spec
		want string
	}{
		{sharding.P("a", "b"), "{devices=[2,2,4]<=[16] last_tile_dim_replicate}"},
		{sharding.P([]string{"a", "b", "c"}), "{devices=[16]<=[16]}"},
		{sharding.P("c", nil), "{devices=[4,1,4]<=[4,4]T(1,0) last_tile_dim_replicate}"},
		{sharding.P("c", []string{"b", "a"}), "{devices=[4,4]<=[2,2,4]T(2,1,0)}"},
		{sharding.P("one"), "{replicated}"},
	} {
		op, err := test.spec.OpSharding(m)
		require.NoError(t, err)
		assert.Equal(t, test.want, op.String())
	}
	_, err := sharding.P("zz").OpSharding(m)
	assert.Error(t, err)
}

func TestSpecOfRejectsUnsupportedShardings(t *testing.T) {
	m := mesh2x4(t)
	for _, text := range []string{
		"{maximal device=0}", "{manual}", "{devices=[8]1,0,2,3,4,5,6,7}", "{devices=[4]<=[4]}",
		"{devices=[4,2]<=[8] last_tile_dim_replicate}", "{devices=[2,4]<=[8] last_tile_dims={manual}}",
	} {
		op, err := sharding.ParseOpSharding(text)
		require.NoError(t, err)
		_, err = sharding.SpecOf(m, op, 1)
		assert.ErrorIs(t, err, errors.ErrUnsupported, text)
	}
	op, err := sharding.ParseOpSharding("{devices=[8]<=[8]}")
	require.NoError(t, err)
	_, err = sharding.SpecOf(m, op, 2)
	assert.ErrorContains(t, err, "rank 2")
	_, err = sharding.SpecOf(m, op, -1)
	assert.Error(t, err)
}
