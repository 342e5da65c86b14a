package sharding_test

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/internal/test/conformance/valuecases"
)

// skipped lists the cases whose input cannot be expressed with Go's types.
var skipped = map[string]bool{
	"tile not ndarray": true, "partial_tile not ndarray": true, "subgroup_tile not ndarray": true,
	"subgroup_tile modes not list": true,
}

func TestOpShardingMatchesTensorFlow(t *testing.T) {
	data, err := os.ReadFile("../testdata/goldens/sharding.json")
	require.NoError(t, err)
	cases, err := valuecases.Shardings(data)
	require.NoError(t, err)
	require.Len(t, cases, 64)
	valuecases.Run(t, cases, func(name string) bool { return skipped[name] })
}
