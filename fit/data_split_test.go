package fit

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/input"
	"github.com/tpustrategy/tpustrategy/internal/test/strategytest"
	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/strategy/feed"
)

// The step's argument annotations determine the sharding of the dataset's batches and of their
// mask.
func TestADatasetIsFedAsTheStepSplitsItsArguments(t *testing.T) {
	s := strategytest.New(t, 2, 2)
	x, err := input.NewTensor(make([]float32, 6*8), 6, 8)
	require.NoError(t, err)
	ds := input.FromSlices(input.Leaf(x)).Batch(4, false)
	arguments := []logical.Annotation{logical.SplitInto(1, 2), logical.SplitInto(2)}
	source, err := Dataset(ds, feed.Options{Partial: feed.Pad}).open(t.Context(), openOptions{strategy: s,
		arguments: arguments})
	require.NoError(t, err)
	for range 2 {
		args, _, err := source.next(t.Context())
		require.NoError(t, err)
		require.Len(t, args, 2)
		for i, arg := range args {
			assert.Equal(t, arguments[i].String(), arg.(*strategy.PerReplica).Annotation().String())
		}
	}
	require.NoError(t, source.close())

	source, err = Dataset(ds).open(t.Context(), openOptions{strategy: s, arguments: arguments})
	require.NoError(t, err)
	_, _, err = source.next(t.Context())
	assert.ErrorContains(t, err, "option Arguments: 2 for the 1 components")
	require.NoError(t, source.close())
}
