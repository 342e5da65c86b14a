package checkpoint

import (
	"context"
	"testing"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/dtypes/bfloat16"
	"github.com/gomlx/compute/dtypes/float16"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/tensors"
	"github.com/stretchr/testify/require"
)

func TestAllDtypesComeBack(t *testing.T) {
	ctx := context.Background()
	values := []*tensors.Tensor{
		tensors.FromValue([]bool{true, false, true}), tensors.FromValue([]int8{-1, 2}), tensors.FromValue([]int16{-300}),
		tensors.FromValue([][]int32{{-70000}, {2}}), tensors.FromScalar(int64(-1 << 62)), tensors.FromValue([]uint8{255}),
		tensors.FromValue([]uint16{65535}), tensors.FromValue([]uint32{1 << 31}), tensors.FromScalar(uint64(1 << 63)),
		tensors.FromValue([]float16.Float16{float16.FromFloat32(1.5)}),
		tensors.FromValue([]bfloat16.BFloat16{bfloat16.FromFloat32(-2)}),
		tensors.FromValue([]float32{1, 2, 3}), tensors.FromValue([]float64{-0.1}), tensors.FromValue([]complex64{1 + 2i}),
		tensors.FromShape(shapes.Make(dtypes.Float32, 2, 0)),
	}
	var saved, restored Group
	for i, v := range values {
		path := "/" + string(rune('a'+i))
		saved = saved.With(&memory{path: path, value: v})
		restored = restored.With(&memory{path: path, value: tensors.FromShape(v.Shape())})
	}
	d := newRun(t, ManagerOptions{})
	require.NoError(t, d.Save(ctx, 1, saved, SaveOptions{}))
	c := latest(t, d)
	require.NoError(t, c.Verify(ctx))
	require.NoError(t, c.Restore(ctx, restored, RestoreOptions{}))
	for i, v := range restored.Variables {
		require.True(t, values[i].Shape().Equal(v.Shape()))
		require.Equal(t, values[i].Value(), v.(*memory).value.Value())
	}
}
