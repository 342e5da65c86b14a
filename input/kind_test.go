package input_test

import (
	"context"
	"fmt"
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

func TestCSVReadsEveryKind(t *testing.T) {
	for k := input.Bool; k <= input.String; k++ {
		paths, opts := memory("1\n0\n")
		ds := input.CSV(paths, input.CSVOptions{FileOptions: opts, Columns: []input.Column{{Name: "v", Kind: k}}})
		for e, err := range ds.Batch(2, true).All(context.Background()) {
			require.NoError(t, err)
			x := e.At(0).Leaf()
			assert.Equal(t, k, x.Kind())
			text := fmt.Sprint(x.Flat())
			if k != input.Float16 && k != input.BFloat16 {
				assert.Contains(t, []string{"[1 0]", "[true false]", "[(1+0i) (0+0i)]"}, text)
			}
			assert.NotEqual(t, text, fmt.Sprint(mustZeros(t, k).Flat()))
		}
	}
}

func mustZeros(t *testing.T, k input.Kind) input.Tensor {
	x, err := input.Zeros(k, 2)
	require.NoError(t, err)
	return x
}

func TestErrorsSayWhatToDo(t *testing.T) {
	for want, err := range map[string]error{
		"the next size that is divisible is 8":    &input.IndivisibleBatchError{Global: 7, Replicas: 2},
		"3 replicas in sync cannot be divided":    &input.UnevenReplicasError{Replicas: 3, Hosts: 2},
		"only has 1 file(s), which is not enough": &input.TooFewFilesError{Files: 1, Hosts: 2},
		"file a at byte 7":                        &input.FileError{Path: "a", Offset: 7, Err: input.ErrCorrupt},
		`component ".x" (int32[? 3])`:             &input.NotBatchedError{Component: ".x", Spec: input.TensorSpec{Kind: input.Int32, Dims: []int{-1, 3}}},
	} {
		assert.ErrorContains(t, err, want)
		assert.True(t, strings.HasPrefix(err.Error(), "input: "))
	}
}
