package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/gomlx/gomlx/core/tensors"
	"github.com/gomlx/gomlx/ml/model"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/strategy/checkpoint"
)

// TestExport writes files of checkpoints.
func TestExport(t *testing.T) {
	store := model.NewStore()
	w := store.RootScope().In("dense").VariableWithValue("w", []float32{1, 2, 3})
	from := filepath.Join(t.TempDir(), "run")
	store.RootScope().In("AdamOptimizer").In("dense").VariableWithValue("w_1st_moment", []float32{7, 7, 7})
	store.RootScope().In("AdamOptimizer").VariableWithValue("step", float32(7))
	store.RootScope().VariableWithValue("global_step", int64(7))
	m, err := checkpoint.OpenManager(t.Context(), filepath.Join(from, "checkpoints"), checkpoint.ManagerOptions{})
	require.NoError(t, err)
	for step := int64(1); step <= 2; step++ {
		require.NoError(t, w.SetValue(tensors.FromValue([]float32{float32(step), 2, 3})))
		require.NoError(t, m.Save(t.Context(), step, checkpoint.StoreGroup(store), checkpoint.SaveOptions{}))
	}
	require.NoError(t, m.Close())
	file := filepath.Join(t.TempDir(), "model.safetensors")
	out, _ := ran(t, 0, "export", from, "-o", file)
	assert.Regexp(t,
		`^step 2: 1 variables, \d.* B\n3 variables of the optimizer and of the run are omitted; --all writes them\n$`, out)
	assert.Equal(t, []float32{2, 2, 3}, exportedValue(t, file))
	out, _ = ran(t, 0, "export", from, "-o", file, "--step", "1", "--json")
	var answer exportAnswer
	require.NoError(t, json.Unmarshal([]byte(out), &answer))
	info, err := os.Stat(file)
	require.NoError(t, err)
	assert.Equal(t, exportAnswer{1, file, info.Size(), 1, 3}, answer)
	assert.Equal(t, []float32{1, 2, 3}, exportedValue(t, file))
	_, stderr := ran(t, exitUsage, "export", from, "-o", file, "--step", "7")
	assert.Contains(t, stderr, "has no step 7; it has 1, 2")
	out, _ = ran(t, 0, "export", filepath.Join(from, "checkpoints"), "-o", file, "--all")
	assert.Contains(t, out, ": 4 variables")
	_, stderr = ran(t, exitUsage, "export", filepath.Join(from, "nowhere"), "-o", "x.safetensors")
	assert.Contains(t, stderr, "nowhere")
	_, stderr = ran(t, exitUsage, "export", "gs://bucket/run", "-o", "x.safetensors")
	assert.Contains(t, stderr, "build the command with -overlay")
	_, stderr = ran(t, exitUsage, "export", from, "-o", "gs://bucket/x.safetensors")
	assert.Contains(t, stderr, "it is a URL")
	_, stderr = ran(t, exitFailed, "export", t.TempDir(), "-o", "x.safetensors")
	assert.Contains(t, stderr, "is empty; save one first")
}

// exportedValue reads the variable of a file.
func exportedValue(t *testing.T, file string) []float32 {
	t.Helper()
	c, err := checkpoint.OpenFile(file, checkpoint.FileOptions{})
	require.NoError(t, err)
	defer c.Close()
	all := c.Variables()
	require.Len(t, all, 1)
	value, err := c.Tensor(t.Context(), all[0].Path)
	require.NoError(t, err)
	return value.Value().([]float32)
}
