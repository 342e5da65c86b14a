package input_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/input"
)

func TestKindsMatchTheComputeTypes(t *testing.T) {
	names := map[string]bool{}
	for k := input.Bool; k <= input.String; k++ {
		require.True(t, k.Valid())
		assert.False(t, names[k.String()], "%v is there twice", k)
		names[k.String()] = true
		x, err := input.Zeros(k, 3)
		require.NoError(t, err)
		assert.Equal(t, k, x.Kind())
		dtype, ok := k.DType()
		if k == input.String {
			assert.False(t, ok, "no device holds strings")
			assert.Nil(t, x.Bytes())
			continue
		}
		require.True(t, ok)
		back, ok := input.KindOf(dtype)
		assert.True(t, ok)
		assert.Equal(t, k, back)
		assert.Equal(t, strings.ToLower(dtype.String()), k.String())
		assert.Equal(t, dtype.Size(), k.Size())
		assert.Len(t, x.Bytes(), 3*k.Size())
	}
	for _, k := range []input.Kind{input.Invalid, input.String + 1} {
		assert.False(t, k.Valid())
		assert.Zero(t, k.Size())
		_, ok := k.DType()
		assert.False(t, ok)
		assert.NotEmpty(t, k.String())
	}
}

func mustZeros(t *testing.T, k input.Kind) input.Tensor {
	x, err := input.Zeros(k, 2)
	require.NoError(t, err)
	return x
}
