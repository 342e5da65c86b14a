package hostdata

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/gomlx/gomlx/core/tensors"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestTensorOfNestedSlicesMatchesGoMLX(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		a, b, c := 1+rng.IntN(4), 1+rng.IntN(4), 1+rng.IntN(4)
		x := make([][][]float32, a)
		for i := range x {
			x[i] = make([][]float32, b)
			for j := range x[i] {
				x[i][j] = make([]float32, c)
				for k := range x[i][j] {
					x[i][j][k] = rng.Float32()
				}
			}
		}
		for _, value := range []any{x, x[0], x[0][0]} {
			want, err := tensors.FromAnyValue(value)
			require.NoError(t, err)
			got, ok := tensorFromSlices(value)
			require.True(t, ok)
			assert.True(t, want.Equal(got), "%v", value)
		}
	}
	for _, value := range []any{[]bool{true, false}, [][]int32{{1}, {2}}, []complex64{1i}, []uint8{1}, []int{1, -2},
		[][]int{{1, 2}, {3, 1 << 40}}} {
		want, err := tensors.FromAnyValue(value)
		require.NoError(t, err)
		got, ok := tensorFromSlices(value)
		require.True(t, ok, "%T", value)
		assert.True(t, want.Equal(got), "%v", value)
	}
}

func TestTensorOfOtherSlices(t *testing.T) {
	for _, value := range []any{
		nil, 1, "text", []string{"text"}, []time.Duration{1}, []float32{}, [][]float32{{}, {}}, [][]float32{{1}, {}},
		[][]float32{{1}, {2, 3}}, [][]float32{},
		[]any{float32(1)}, [2]float32{1, 2},
	} {
		_, ok := tensorFromSlices(value)
		assert.False(t, ok, "%#v", value)
	}
}

func BenchmarkHostTensorOfSlices(b *testing.B) {
	x := [][]float32{make([]float32, 250_000), make([]float32, 250_000)}
	b.SetBytes(2 * 250_000 * 4)
	for b.Loop() {
		if _, err := ToTensor(x); err != nil {
			b.Fatal(err)
		}
	}
}
