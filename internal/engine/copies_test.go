package engine

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/internal/test/plugintest"
	"github.com/tpustrategy/tpustrategy/pjrt"
	"github.com/tpustrategy/tpustrategy/tpu/system"
)

// four returns a runtime with four groups of one CPU device.
func four(t *testing.T) *Runtime {
	plugintest.Path(t, "cpu")
	sys, err := system.Open(t.Context(), system.Options{CPUDevices: 4})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, sys.Close()) })
	d, err := NewRuntime(sys, Options{ErrorPrefix: "test", Groups: [][]int{{0}, {1}, {2}, {3}},
		Closed: errors.New("closed")})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, errors.Join(d.Close()...)) })
	return d
}

// TestSpreading copies two tensors to three other devices, also with a plugin without copies
// between devices, and checks that the copies in progress are limited to the bytes of one tensor.
func TestSpreading(t *testing.T) {
	d, ctx := four(t), t.Context()
	for name, to := range map[string]func(context.Context, *pjrt.Buffer, *pjrt.Device) (*pjrt.Buffer, error){
		"by the plugin": nil,
		"through the host": func(context.Context, *pjrt.Buffer, *pjrt.Device) (*pjrt.Buffer, error) {
			return nil, pjrt.Unimplemented
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := d.NewBroadcaster()
			if to != nil {
				s.copyToDevice = to
			}
			for _, want := range [][]byte{{1, 2, 3}, {4, 5, 6, 7}} {
				l, all := NewReplicatedLayout(pjrt.U8, []int{len(want)}, 1), d.Buffers()
				var scratch []byte
				require.NoError(t, d.PutShard(ctx, l, 0, want, &scratch, all))
				require.False(t, d.HasAllBuffers(all))
				require.NoError(t, s.Start(ctx, len(want), all, func(int) int { return 0 }))
				assert.LessOrEqual(t, s.bytes, len(want))
				assert.Len(t, s.running, 1)
				require.True(t, d.HasAllBuffers(all))
				for partition := range all {
					got := make([]byte, len(want))
					require.NoError(t, d.GetTensor(ctx, l, all, []int{partition}, got))
					assert.Equal(t, want, got)
				}
				defer func() { require.NoError(t, all.Close()) }()
			}
		})
	}
}

// TestACopyThatFails uses a device that rejects copies: the tensor stays incomplete.
func TestACopyThatFails(t *testing.T) {
	d, ctx := four(t), t.Context()
	s, l, all := d.NewBroadcaster(), NewReplicatedLayout(pjrt.U8, []int{2}, 1), d.Buffers()
	s.copyToDevice = func(ctx context.Context, b *pjrt.Buffer, to *pjrt.Device) (*pjrt.Buffer, error) {
		if to == d.All[3] {
			return nil, &pjrt.Error{Op: "copy to device", Code: pjrt.ResourceExhausted}
		}
		return b.CopyToDevice(ctx, to)
	}
	var scratch []byte
	require.NoError(t, d.PutShard(ctx, l, 0, []byte{1, 2}, &scratch, all))
	err := s.Start(ctx, 2, all, func(int) int { return 0 })
	require.ErrorIs(t, err, pjrt.ResourceExhausted)
	require.ErrorContains(t, err, "replica 3")
	assert.False(t, d.HasAllBuffers(all))
	require.NoError(t, all.Close())
}

// TestPutRefusesOtherSizes passes tensors of other shapes than the layout, and uses a closed
// runtime.
func TestPutRefusesOtherSizes(t *testing.T) {
	d, ctx := four(t), t.Context()
	l, all := NewReplicatedLayout(pjrt.F32, []int{2}, 1), d.Buffers()
	err := d.PutTensor(ctx, l, func(group int) []byte { return make([]byte, 8-group) }, all)
	require.ErrorContains(t, err, "test: copying to replica 1, logical device 0: 7 bytes for")
	for _, b := range all {
		assert.True(t, b == nil || b.ToHost(ctx, make([]byte, 8)) != nil, "after an error no buffer is live")
	}
}
