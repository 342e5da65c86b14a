package ragged_test

import (
	"testing"

	"github.com/gomlx/gomlx/core/graph"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/lowering/ragged"
)

func TestStepsThatDifferByMoreThanTheirSizesAreRefused(t *testing.T) {
	for want, f := range map[string]step{
		"multiply becomes": func(x *graph.Node) *graph.Node {
			if x.Shape().Dimensions[0] > 4 {
				return graph.Tanh(x)
			}
			return graph.Mul(x, x)
		},
		"its elements change with a padded size": func(x *graph.Node) *graph.Node {
			return graph.Mul(x, graph.Const(x.Graph(), [][]float32{{float32(x.Shape().Dimensions[0]), 1, 2, 3, 4, 5}}))
		},
		"no function of the padded size was found": func(x *graph.Node) *graph.Node {
			return graph.MulScalar(x, float64(max(x.Shape().Dimensions[0], 10)))
		},
	} {
		_, _, err := rewritten(t, f)
		var refused *ragged.Error
		require.ErrorAs(t, err, &refused)
		assert.ErrorContains(t, err, want)
	}
}

func TestAProgramThatIsRefusedStaysAsItWas(t *testing.T) {
	f := func(x *graph.Node) *graph.Node {
		return graph.Reverse(graph.MulScalar(x, 1/float64(x.Shape().Dimensions[0])), 0)
	}
	base := traced(t, 4, f)
	before, err := base.Program.Text()
	require.NoError(t, err)
	plan, err := ragged.Compare(base, []ragged.Variant{traced(t, 8, f), traced(t, 20, f)})
	require.NoError(t, err)
	_, err = plan.Apply([]ragged.SizeSource{{Parameter: "sizes"}})
	require.Error(t, err)
	after, err := base.Program.Text()
	require.NoError(t, err)
	assert.Equal(t, string(before), string(after))
}
