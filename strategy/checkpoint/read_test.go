package checkpoint

import (
	"context"
	"io"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/internal/safetensors"
)

func TestAClosedCheckpointSaysSo(t *testing.T) {
	ctx := context.Background()
	d := newRun(t, ManagerOptions{})
	require.NoError(t, d.Save(ctx, 1, numbers(1), SaveOptions{}))
	c, err := d.Latest(ctx)
	require.NoError(t, err)
	require.NoError(t, c.Close())
	require.NoError(t, c.Close())
	require.ErrorIs(t, c.Verify(ctx), ErrClosed)
	require.ErrorIs(t, c.Restore(ctx, numbers(1), RestoreOptions{SkipVerify: true}), ErrClosed)
	_, err = c.Tensor(ctx, "/a")
	require.ErrorIs(t, err, ErrClosed)
}

func TestBytesThatAreNoTruthValuesAreRefused(t *testing.T) {
	path := filepath.Join(t.TempDir(), "flags.safetensors")
	for _, bytes := range [][]byte{{0, 1, 1}, {0, 1, 2}, {255, 0, 0}} {
		require.NoError(t, safetensors.WriteFile(path, []safetensors.Spec{{Name: "flags", DType: safetensors.Bool,
			Shape: []int{3}}}, nil, func(_ safetensors.Info, w io.Writer) error {
			_, err := w.Write(bytes)
			return err
		}))
		c, err := OpenFile(path, FileOptions{})
		require.NoError(t, err)
		got, err := c.Tensor(context.Background(), "/flags")
		if bytes[2] == 1 {
			require.NoError(t, err)
			require.Equal(t, []bool{false, true, true}, got.Value())
		} else {
			require.ErrorIs(t, err, ErrCorrupt)
			require.ErrorContains(t, err, "truth value")
		}
		require.NoError(t, c.Close())
	}
}
