package precision_test

import (
	"math"
	"testing"

	"github.com/gomlx/compute/dtypes"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/lowering/precision"
)

func TestFilledPolicies(t *testing.T) {
	f := precision.MixedBFloat16.WithDefaults()
	require.Equal(t, precision.Policy{Parameters: dtypes.Float32, Compute: dtypes.BFloat16, Output: dtypes.Float32,
		Accumulate: dtypes.Float32, Partial: dtypes.BFloat16}, f)
	require.Equal(t, f, f.WithDefaults())
	require.Equal(t, precision.Policy{}, precision.Policy{}.WithDefaults())
	require.Equal(t, dtypes.Float64, precision.Policy{Compute: dtypes.Float64}.WithDefaults().Accumulate)
	require.Equal(t, "parameters Float32, compute BFloat16, output Float32, accumulate Float32, partial BFloat16",
		precision.MixedBFloat16.String())
	require.Equal(t, "no policy", precision.Policy{}.String())
	for _, p := range []precision.Policy{{}, precision.Float32, precision.MixedBFloat16, precision.MixedFloat16} {
		require.NoError(t, p.Validate(), p)
	}
}

func TestValidateRejectsInvalidPolicies(t *testing.T) {
	for name, c := range map[string]struct {
		policy precision.Policy
		text   string
	}{
		"integer parameters": {precision.Policy{Parameters: dtypes.Int64},
			"Policy.Parameters: Int64 is not a dtype that a model can be computed in"},
		"integer compute": {precision.Policy{Compute: dtypes.Int8}, "Policy.Compute: Int8"},
		"bools":           {precision.Policy{Output: dtypes.Bool}, "Policy.Output: Bool"},
		"complex numbers": {precision.Policy{Compute: dtypes.Complex64}, "Policy.Compute: Complex64"},
		"eight bits":      {precision.Policy{Reduce: dtypes.F8E4M3FN}, "Policy.Reduce: F8E4M3FN"},
		"narrow sums": {precision.Policy{Compute: dtypes.Float32, Accumulate: dtypes.BFloat16},
			"Policy.Accumulate: sums in BFloat16 do not hold the terms, which are Float32"},
		"sums of the other 16": {precision.Policy{Compute: dtypes.BFloat16, Accumulate: dtypes.Float16},
			"Policy.Accumulate: sums in Float16"},
		"narrow partial sums": {precision.Policy{Compute: dtypes.Float64, Partial: dtypes.Float32},
			"Policy.Partial: sums in Float32"},
	} {
		t.Run(name, func(t *testing.T) {
			err := c.policy.Validate()
			require.ErrorContains(t, err, c.text)
			require.Equal(t, errkind.ValueError, errkind.KindOf(err))
		})
	}
}

func TestLossScales(t *testing.T) {
	require.NoError(t, precision.LossScale{}.Validate())
	require.NoError(t, precision.FixedLossScale(1024).Validate())
	require.Equal(t, precision.DynamicLossScale, precision.LossScale{Interval: 2000}.WithDefaults())
	require.Equal(t, "32768, times 2 after 2000 steps", precision.DynamicLossScale.String())
	require.Equal(t, "1024, fixed", precision.FixedLossScale(1024).String())
	for name, c := range map[string]struct {
		scale precision.LossScale
		text  string
	}{
		"infinite":     {precision.FixedLossScale(math.Inf(1)), "LossScale.Initial: the scale is +Inf"},
		"no number":    {precision.FixedLossScale(math.NaN()), "LossScale.Initial: the scale is NaN"},
		"too large":    {precision.FixedLossScale(1e39), "LossScale.Initial"},
		"below one":    {precision.FixedLossScale(0.5), "LossScale.Initial: the scale is 0.5"},
		"negative":     {precision.LossScale{Initial: -1, Interval: 1}, "LossScale.Initial: the scale is -1"},
		"shrinking":    {precision.LossScale{Interval: 1, Factor: 0.5}, "LossScale.Factor: the scale is multiplied by 0.5"},
		"factor one":   {precision.LossScale{Interval: 1, Factor: 1}, "LossScale.Factor"},
		"wide factor":  {precision.LossScale{Interval: 1, Factor: math.Inf(1)}, "LossScale.Factor"},
		"minus a step": {precision.LossScale{Interval: -1}, "LossScale.Interval: the scale grows after -1 steps"},
	} {
		t.Run(name, func(t *testing.T) {
			err := precision.Policy{Compute: dtypes.Float16, LossScale: c.scale}.Validate()
			require.ErrorContains(t, err, c.text)
			require.Equal(t, errkind.ValueError, errkind.KindOf(err))
		})
	}
}
