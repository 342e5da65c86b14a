package strategy_test

import (
	"context"
	"testing"

	"github.com/gomlx/gomlx/core/tensors"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/internal/test/plugintest"
	"github.com/tpustrategy/tpustrategy/internal/test/strategytest"
	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/pjrt/leaktest"
	"github.com/tpustrategy/tpustrategy/strategy"
)

// Large data is copied to the devices in parallel, small data sequentially. Both copy the same
// shards to the same devices, and leave no buffers after an error.
func TestUploadsOfAnySizeArriveWhole(t *testing.T) {
	leaktest.Check(t)
	ctx := context.Background()
	for _, mesh := range [][2]int{{4, 1}, {2, 2}, {1, 4}} {
		s := strategytest.On(t, plugintest.System(t, 4), strategy.Options{Replicas: mesh[0], LogicalDevices: mesh[1]})
		for _, rows := range []int{4, 4096} {
			x := make([]float32, rows*512)
			for i := range x {
				x[i] = float32(i)
			}
			batch := tensors.FromFlatDataAndDimensions(x, rows, 512)
			for _, a := range []logical.Annotation{{}, logical.SplitInto(1, mesh[1])} {
				v, err := s.SplitBatch(ctx, batch, a, false)
				require.NoError(t, err)
				for r := range mesh[0] {
					got, err := v.Local(ctx, r)
					require.NoError(t, err)
					n := len(x) / mesh[0]
					require.Equal(t, x[r*n:(r+1)*n], tensors.MustCopyFlatData[float32](got))
				}
				require.NoError(t, v.Close())
				m, err := s.Mirror(ctx, batch, a)
				require.NoError(t, err)
				got, err := m.Value(ctx)
				require.NoError(t, err)
				require.Equal(t, x, tensors.MustCopyFlatData[float32](got))
				require.NoError(t, m.Close())
			}
			gone, cancel := context.WithCancel(ctx)
			cancel()
			_, err := s.SplitBatch(gone, batch, logical.Annotation{}, false)
			require.ErrorIs(t, err, context.Canceled)
		}
	}
}
