package precision_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/lowering/precision"
)

func TestParsePolicy(t *testing.T) {
	for name, want := range map[string]precision.Policy{
		"f32": precision.Float32, "bf16": precision.MixedBFloat16, "f16": precision.MixedFloat16,
		"float32": precision.Float32, "mixed_bfloat16": precision.MixedBFloat16, "mixed_float16": precision.MixedFloat16,
	} {
		got, err := precision.ParsePolicy(name)
		require.NoError(t, err)
		assert.Equal(t, want, got, name)
	}
	_, err := precision.ParsePolicy("fp8")
	assert.Equal(t, errkind.ValueError, errkind.KindOf(err))
	assert.EqualError(t, err, `precision: parse: no policy "fp8"; write "f32", "bf16" or "f16"`)
}
