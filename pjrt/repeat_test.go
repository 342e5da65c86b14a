package pjrt_test

import (
	"math"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/internal/test/plugintest"
	"github.com/tpustrategy/tpustrategy/pjrt"
	"github.com/tpustrategy/tpustrategy/pjrt/leaktest"
)

func TestRepeatRejectsInvalidArguments(t *testing.T) {
	leaktest.Check(t)
	c := plugintest.CPU(t, 1)
	x := compile(t, c, function("%x: tensor<2xf32>", "tensor<4xf32>",
		"%o = stablehlo.concatenate %x, %x, dim = 0 : (tensor<2xf32>, tensor<2xf32>) -> tensor<4xf32>\n return %o : "+
			"tensor<4xf32>"), pjrt.CompileOptions{})
	b := put(t, c, []float32{1, 2}, pjrt.F32, []int{2}, c.Devices()[0])
	var ae *pjrt.ArgumentError
	_, err := x.MeasureLoop(background, [][]*pjrt.Buffer{{b}}, 3)
	require.ErrorAs(t, err, &ae)
	_, err = x.MeasureLoop(background, [][]*pjrt.Buffer{{}}, 3)
	require.ErrorAs(t, err, &ae)
	for _, n := range []int{0, -1, math.MinInt} {
		_, err = x.MeasureLoop(background, [][]*pjrt.Buffer{{b}}, n)
		require.ErrorContains(t, err, "must be at least 1")
	}
	assert.Equal(t, []float32{1, 2}, get[float32](t, b, 2))
}
