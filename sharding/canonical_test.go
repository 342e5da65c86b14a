package sharding_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/sharding"
)

// The expected texts are the output of XLA for the same tiles.
func TestCanonicalMatchesXLA(t *testing.T) {
	for text, want := range map[string]string{
		"{devices=[1,1]5}":                           "{replicated}",
		"{devices=[1,1,1]0 last_tile_dims={manual}}": "{replicated}",
		"{devices=[1,2]1,0}":                         "{devices=[1,2]1,0}",
		"{devices=[2,1]3,1 last_tile_dim_replicate}": "{devices=[2]3,1}",
		"{devices=[2,2]3,1,2,0 last_tile_dim_replicate}": "{devices=[2,2]1,3,0,2 " +
			"last_tile_dim_replicate}",
		"{devices=[2,2]3,1,2,0 last_tile_dims={manual}}": "{devices=[2,2]3,1,2,0 " +
			"last_tile_dims={manual}}",
		"{devices=[1,2]1,0 last_tile_dims={manual}}":               "{manual}",
		"{devices=[1,2]1,0 last_tile_dim_replicate}":               "{replicated}",
		"{devices=[1,2,1]0,1 last_tile_dims={manual, replicated}}": "{manual}",
		"{devices=[1,1,2]0,1 last_tile_dims={manual, replicated}}": "{replicated}",
		"{devices=[2,2,2]7,5,3,1,6,4,2,0 last_tile_dims={manual, replicated}}": "{devices=[2,2,2]5,7,1,3,4,6,0,2 " +
			"last_tile_dims={manual, replicated}}",
		"{devices=[2,2,2]7,5,3,1,6,4,2,0 last_tile_dims={replicated, manual}}": "{devices=[2,2,2]3,7,1,5,2,6,0,4 " +
			"last_tile_dims={manual, replicated}}",
		"{devices=[1,2,2]3,1,2,0 last_tile_dims={replicated, manual}}": "{devices=[1,2,2]2,3,0,1 " +
			"last_tile_dims={manual, replicated}}",
		"{devices=[2,2]<=[4] last_tile_dim_replicate}": "{devices=[2,2]<=[4] " +
			"last_tile_dim_replicate}",
		"{devices=[2,1,2]<=[2,2]T(1,0) last_tile_dims={manual, replicated}}": "{devices=[2,2]0,2,1,3 " +
			"last_tile_dim_replicate}",
		"{{devices=[2,1]3,1 last_tile_dim_replicate}, {devices=[1,1]0}, {manual}}": "{{devices=[2]3,1}, {replicated}, " +
			"{manual}}",
	} {
		op, err := sharding.ParseOpSharding(text)
		require.NoError(t, err, text)
		got := op.Canonical()
		assert.Equal(t, want, got.String(), text)
		assert.True(t, got.Equal(got.Canonical()), "%s: Canonical is idempotent", text)
	}
}

func TestCanonicalMergesSubgroupsOfOneKind(t *testing.T) {
	op, err := sharding.OpSubgroupTile([]int{2, 2, 2}, []int{7, 5, 3, 1, 6, 4, 2, 0}, sharding.KindManual,
		sharding.KindManual)
	require.NoError(t, err)
	assert.Equal(t, "{devices=[2,4]7,5,3,1,6,4,2,0 last_tile_dims={manual}}", op.Canonical().String())
	op, err = sharding.OpSubgroupTile([]int{2, 2, 2}, []int{7, 5, 3, 1, 6, 4, 2, 0}, sharding.KindReplicated,
		sharding.KindReplicated)
	require.NoError(t, err)
	assert.Equal(t, "{devices=[2,4]1,3,5,7,0,2,4,6 last_tile_dim_replicate}", op.Canonical().String())
}
