package sharding_test

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/sharding"
)

func TestParseShardyIsInverseOfShardy(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	for range 300 {
		m := randomMesh(t, rng)
		spec, _ := randomSpec(t, rng, m)
		_, got, err := sharding.ParseShardy(spec.ShardyText("m"))
		require.NoError(t, err)
		require.True(t, spec.Equal(got), "%v != %v", spec, got)
	}
}
