package pjrt_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/internal/test/plugintest"
	"github.com/tpustrategy/tpustrategy/pjrt"
	"github.com/tpustrategy/tpustrategy/pjrt/leaktest"
)

func TestCloseInAnyOrder(t *testing.T) {
	leaktest.Check(t)
	type closer interface{ Close() error }
	for _, order := range [][]int{{0, 1, 2, 3}, {0, 2, 1, 3}, {1, 0, 2, 3}, {1, 2, 0, 3}, {2, 0, 1, 3}, {2, 1, 0, 3},
		{3, 0, 1, 2}, {0, 3, 1, 2}, {0, 1, 3, 2}} {
		c := plugintest.CPU(t, 1)
		x, err := c.Compile(background, two(), pjrt.CompileOptions{})
		require.NoError(t, err)
		topology, err := c.Topology()
		require.NoError(t, err)
		b, err := c.BufferFromHost(background, make([]byte, 4), pjrt.F32, nil, c.Devices()[0])
		require.NoError(t, err)
		all := []closer{b, x, topology, c}
		for i, k := range order {
			err := all[k].Close()
			if k == 3 && i < 3 {
				var open *pjrt.InUseError
				require.ErrorAs(t, err, &open)
				assert.Equal(t, 3-i, open.Buffers+open.Executables+open.Topologies, "%v", err)
				continue
			}
			require.NoError(t, err)
			require.NoError(t, all[k].Close(), "twice")
		}
		require.NoError(t, c.Close())
		require.NoError(t, c.Close())

		_, err = c.BufferFromHost(background, make([]byte, 4), pjrt.F32, nil, c.Devices()[0])
		require.ErrorIs(t, err, pjrt.ErrClosed)
		_, err = c.Compile(background, two(), pjrt.CompileOptions{})
		require.ErrorIs(t, err, pjrt.ErrClosed)
		_, err = c.Topology()
		require.ErrorIs(t, err, pjrt.ErrClosed)
		_, err = c.Devices()[0].MemoryStats()
		require.ErrorIs(t, err, pjrt.ErrClosed)
		require.ErrorIs(t, c.RefillFromHost(background, b, make([]byte, 4), pjrt.F32, nil, c.Devices()[0]),
			pjrt.ErrClosed)
		require.ErrorIs(t, b.Ready(background), pjrt.ErrClosed)
		_, err = b.IsReady()
		require.ErrorIs(t, err, pjrt.ErrClosed)
		assert.Equal(t, "cpu", c.PlatformName(), "values outlive the client")
		assert.Equal(t, 0, c.Devices()[0].ID())
	}
}

func TestModifiedDimsDoNotAffectChecks(t *testing.T) {
	b := newFixture(t)
	wrong := put(t, b.c, make([]float32, 6), pjrt.F32, []int{3, 2}, b.d0)
	copy(wrong.Dims(), []int{2, 3})
	b.args[0][0] = wrong
	var ae *pjrt.ArgumentError
	require.ErrorAs(t, b.x.Execute(background, b.args, b.results, pjrt.ExecuteOptions{}), &ae)
}
