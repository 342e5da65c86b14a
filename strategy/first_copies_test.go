package strategy

import (
	"context"
	"testing"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/gomlx/core/tensors"
	"github.com/gomlx/gomlx/ml/model"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/internal/test/plugintest"
	"github.com/tpustrategy/tpustrategy/pjrt"
	"github.com/tpustrategy/tpustrategy/tpu/system"
)

// TestValueCopies copies two variables to three other devices, also with a plugin that
// copies nothing between devices, and holds what is under way to one value's bytes.
func TestValueCopies(t *testing.T) {
	plugintest.Path(t, "cpu")
	ctx := t.Context()
	sys, err := system.Open(ctx, system.Options{CPUDevices: 4})
	require.NoError(t, err)
	defer func() { require.NoError(t, sys.Close()) }()
	for name, to := range map[string]func(context.Context, *pjrt.Buffer, *pjrt.Device) (*pjrt.Buffer, error){
		"by the plugin": nil,
		"through the host": func(context.Context, *pjrt.Buffer, *pjrt.Device) (*pjrt.Buffer, error) {
			return nil, pjrt.Unimplemented
		},
	} {
		t.Run(name, func(t *testing.T) {
			s, err := New(sys, Options{Replicas: 4})
			require.NoError(t, err)
			defer func() { require.NoError(t, s.Close()) }()
			store := model.NewStore()
			c := valueCopies{strategy: s, to: to}
			want := map[string][]float32{"/a": {1, 2, 3}, "/b": {4, 5, 6, 7}}
			for _, path := range []string{"/a", "/b"} {
				store.VariableWithValue(path, want[path])
				v, err := s.Variables(store).variable(path)
				require.NoError(t, err)
				l, err := s.layout(dtypes.Float32, v.shape, v.annotation, false)
				require.NoError(t, err)
				buffers := make([]*pjrt.Buffer, 4)
				require.NoError(t, tensors.FromValue(want[path]).ConstBytes(func(data []byte) {
					var scratch []byte
					require.NoError(t, s.uploadPart(ctx, &l, 0, 0, data, &scratch, buffers))
				}))
				require.NoError(t, c.start(ctx, v, buffers, s.makersOf(&l)))
				assert.LessOrEqual(t, c.bytes, l.bytes)
				assert.Len(t, c.underWay, 1)
				assert.NotNil(t, v.waiting.Load(), "not before all copies are there")
			}
			require.NoError(t, c.finish(ctx))
			for _, v := range s.Variables(store).All() {
				for r := range 4 {
					component, err := v.Component(r)
					require.NoError(t, err)
					got, err := component.Local(ctx)
					require.NoError(t, err)
					assert.Equal(t, want[v.Path()], got.Value())
				}
			}
		})
	}
}

// TestACopyThatFailsLeavesTheVariableWaiting has a device that takes no copy.
func TestACopyThatFailsLeavesTheVariableWaiting(t *testing.T) {
	plugintest.Path(t, "cpu")
	ctx := t.Context()
	sys, err := system.Open(ctx, system.Options{CPUDevices: 4})
	require.NoError(t, err)
	defer func() { require.NoError(t, sys.Close()) }()
	s, err := New(sys, Options{Replicas: 4})
	require.NoError(t, err)
	defer func() { require.NoError(t, s.Close()) }()
	store := model.NewStore()
	store.VariableWithValue("a", []float32{1, 2})
	v, err := s.Variables(store).variable("/a")
	require.NoError(t, err)
	c := valueCopies{strategy: s, to: func(ctx context.Context, b *pjrt.Buffer, d *pjrt.Device) (*pjrt.Buffer, error) {
		if d == s.devices[3] {
			return nil, &pjrt.Error{Op: "copy to device", Code: pjrt.ResourceExhausted}
		}
		return b.CopyToDevice(ctx, d)
	}}
	buffers := make([]*pjrt.Buffer, 4)
	buffers[0], err = sys.Runtime().BufferFromHost(ctx, make([]byte, 8), pjrt.F32, []int{2}, s.devices[0])
	require.NoError(t, err)
	err = c.start(ctx, v, buffers, s.makersOf(&layout{whole: true}))
	require.ErrorIs(t, err, pjrt.ResourceExhausted)
	require.ErrorContains(t, err, "replica 3")
	require.NoError(t, c.finish(ctx))
	assert.NotNil(t, v.waiting.Load())
	value, err := v.Value(ctx) // the store's
	require.NoError(t, err)
	assert.Equal(t, []float32{1, 2}, value.Value())
}
