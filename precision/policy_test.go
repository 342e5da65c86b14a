package precision_test

import (
	"testing"

	"github.com/gomlx/compute/dtypes"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/precision"
)

func TestFilledPolicies(t *testing.T) {
	f := precision.MixedBFloat16.Filled()
	require.Equal(t, precision.Policy{Parameters: dtypes.Float32, Compute: dtypes.BFloat16, Output: dtypes.Float32,
		Accumulate: dtypes.Float32, Partial: dtypes.BFloat16}, f)
	require.Equal(t, f, f.Filled())
	require.Equal(t, precision.Policy{}, precision.Policy{}.Filled())
	require.Equal(t, dtypes.Float64, precision.Policy{Compute: dtypes.Float64}.Filled().Accumulate)
	require.Equal(t, "parameters Float32, compute BFloat16, output Float32, accumulate Float32, partial BFloat16", precision.MixedBFloat16.String())
	require.Equal(t, "no policy", precision.Policy{}.String())
	for _, p := range []precision.Policy{{}, precision.Float32, precision.MixedBFloat16} {
		require.NoError(t, p.Validate(), p)
	}
}

func TestPoliciesThatCannotBe(t *testing.T) {
	for name, c := range map[string]struct {
		policy precision.Policy
		text   string
	}{
		"integer parameters":   {precision.Policy{Parameters: dtypes.Int64}, "Policy.Parameters: Int64 is not a dtype that a model can be computed in"},
		"integer compute":      {precision.Policy{Compute: dtypes.Int8}, "Policy.Compute: Int8"},
		"bools":                {precision.Policy{Output: dtypes.Bool}, "Policy.Output: Bool"},
		"complex numbers":      {precision.Policy{Compute: dtypes.Complex64}, "Policy.Compute: Complex64"},
		"eight bits":           {precision.Policy{Reduce: dtypes.F8E4M3FN}, "Policy.Reduce: F8E4M3FN"},
		"narrow sums":          {precision.Policy{Compute: dtypes.Float32, Accumulate: dtypes.BFloat16}, "Policy.Accumulate: sums in BFloat16 do not hold the terms, which are Float32"},
		"sums of the other 16": {precision.Policy{Compute: dtypes.BFloat16, Accumulate: dtypes.Float16}, "Policy.Accumulate: sums in Float16"},
		"narrow partial sums":  {precision.Policy{Compute: dtypes.Float64, Partial: dtypes.Float32}, "Policy.Partial: sums in Float32"},
	} {
		t.Run(name, func(t *testing.T) {
			err := c.policy.Validate()
			require.ErrorContains(t, err, c.text)
			require.Equal(t, errkind.ValueError, errkind.Of(err))
		})
	}
}
