package checkpoint

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/gomlx/gomlx/core/tensors"
	"github.com/stretchr/testify/require"
)

// The test exports a checkpoint in several pieces and requires an error for a damaged one.
// TestAnOldFolderStillLoads exports a single-file checkpoint.
func TestAnExportIsOnePlainFile(t *testing.T) {
	ctx := context.Background()
	dir := t.TempDir()
	g := numbers(3)
	large := tensors.FromFlatDataAndDimensions(make([]float32, 70*200_000), 70, 200_000)
	require.NoError(t, large.MutableBytes(func(data []byte) {
		for i := range data {
			data[i] = byte(i * 31 >> 6)
		}
	}))
	g = g.With(&memory{path: "/large", value: large}, &memory{path: "/empty",
		value: tensors.FromFlatDataAndDimensions([]float32{}, 0, 3)})
	m := newManager(t, filepath.Join(dir, "shards"), ManagerOptions{})
	opts := SaveOptions{Metadata: map[string]string{"position": "here"}}
	require.NoError(t, m.Save(ctx, 12, g, opts))
	require.NoError(t, m.Wait(ctx))
	c, err := m.Latest(ctx)
	require.NoError(t, err)
	defer c.Close()
	path := filepath.Join(dir, "model.safetensors")
	require.NoError(t, c.Export(ctx, path, ExportOptions{All: true}))
	file, err := OpenFile(path, FileOptions{})
	require.NoError(t, err)
	defer file.Close()
	require.Equal(t, map[string]string{"position": "here", metadataStep: "12"}, file.Metadata())
	for _, v := range g.Variables {
		got, err := file.Tensor(ctx, v.Path())
		require.NoError(t, err)
		want := v.(*memory).value
		require.True(t, want.Shape().Equal(got.Shape()), v.Path())
		require.NoError(t, want.ConstBytes(func(want []byte) {
			require.NoError(t, got.ConstBytes(func(got []byte) { require.True(t, bytes.Equal(want, got), v.Path()) }))
		}))
	}

	shards, err := filepath.Glob(filepath.Join(dir, "shards", "step-0000000012", "*", "*.safetensors"))
	require.NoError(t, err)
	whole, err := os.ReadFile(shards[0])
	require.NoError(t, err)
	whole[len(whole)-1] ^= 1
	require.NoError(t, os.WriteFile(shards[0], whole, 0o644))
	require.ErrorIs(t, c.Export(ctx, path, ExportOptions{All: true}), ErrCorrupt)
	require.Error(t, c.Export(ctx, "gs://bucket/file", ExportOptions{All: true}))
}
