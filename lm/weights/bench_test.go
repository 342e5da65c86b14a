package weights_test

import (
	"context"
	"testing"

	"github.com/gomlx/compute/dtypes"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/internal/safetensors"
	"github.com/tpustrategy/tpustrategy/lm/weights"
)

// BenchmarkRead reads a matrix of 2048 x 2048 unchanged, transposed, and converted to a larger
// dtype.
func BenchmarkRead(b *testing.B) {
	const n = 2048
	for _, c := range []struct {
		name  string
		dtype safetensors.DType
		steps []weights.Step
	}{{"f32", safetensors.F32, nil}, {"f32 turned", safetensors.F32, turned}, {"bf16", safetensors.BF16, nil},
		{"bf16 turned", safetensors.BF16, turned}} {
		b.Run(c.name, func(b *testing.B) {
			f := open(b, tensor{"x", c.dtype, counting(0, n, n)})
			v := weights.Variable{Path: "/x", DType: dtypes.Float32, Shape: []int{n, n}}
			p, err := weights.NewPlan(f.Tensors(), []weights.Variable{v}, weights.Rules{{Tensor: "x", To: to("/x", c.steps...)}},
				weights.PlanOptions{})
			require.NoError(b, err)
			into := make([]byte, 4*n*n)
			b.SetBytes(int64(n * n * c.dtype.Bits() / 8))
			b.ResetTimer()
			for b.Loop() {
				if err := p.Read(context.Background(), f, "/x", []int{0, 0}, v.Shape, into); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
