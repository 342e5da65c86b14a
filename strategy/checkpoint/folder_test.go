package checkpoint

import (
	"context"
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/storage"
)

// The test continues in a folder with one file for each step.
func TestAnOldFolderStillLoads(t *testing.T) {
	ctx := context.Background()
	d := oldRun(t, ManagerOptions{Retention: Retention{Last: 2}})
	for step := int64(1); step <= 2; step++ {
		requireStep(t, d.Manager, step, float32(step))
	}
	c := latest(t, d)
	assert.Equal(t, map[string]string{"k": "v"}, c.Metadata())
	assert.Nil(t, c.Metrics())
	for share := range 3 {
		require.NoError(t, c.VerifyShard(ctx, share, 3))
	}
	a, err := c.Tensor(ctx, "/a")
	require.NoError(t, err)
	require.Equal(t, []float32{2, 2, 2}, a.Value())
	exported := filepath.Join(t.TempDir(), "model.safetensors")
	require.NoError(t, c.Export(ctx, exported, ExportOptions{All: true}))
	want, err := os.ReadFile(filepath.Join(d.Dir(), stepName(2), variablesFile))
	require.NoError(t, err)
	got, err := os.ReadFile(exported)
	require.NoError(t, err)
	require.True(t, string(want) == string(got))

	require.ErrorIs(t, d.Save(ctx, 2, numbers(9), SaveOptions{}), ErrStepOrder)
	require.NoError(t, d.Save(ctx, 3, numbers(3), SaveOptions{}))
	steps, err := d.Steps(ctx)
	require.NoError(t, err)
	require.Equal(t, []int64{2, 3}, steps, "the retention counts them")
	require.NoError(t, d.RemoveAfter(ctx, 1))
	require.Equal(t, []string{ownerObject}, names(t, d.Dir()))
}

// The folder was saved from a mesh of two replicas.
func TestAnOldFolderOfAStrategyStillLoads(t *testing.T) {
	ctx := context.Background()
	s, err := storage.Directory("testdata/directory_of_a_strategy")
	require.NoError(t, err)
	c, err := managerOf(t, s, ManagerOptions{}).Latest(ctx)
	require.NoError(t, err)
	defer c.Close()
	require.NoError(t, c.Verify(ctx))
	values := map[string]any{}
	for _, v := range c.Variables() {
		value, err := c.Tensor(ctx, v.Path)
		require.NoError(t, err)
		values[v.Path] = value.Value()
	}
	require.Equal(t, map[string]any{"matrix": [][]float32{{1, 2, 3, 4}, {5, 6, 7, 8}}, "sum": []float32{8, 16},
		"mean":  []float32{3},
		"flags": []bool{true, false, true}}, values)
}

func TestSavesAreListedOpenedAndTakeTurns(t *testing.T) {
	ctx := context.Background()
	d := newRun(t, ManagerOptions{})
	_, err := d.Latest(ctx)
	require.ErrorIs(t, err, ErrNotFound)
	for _, step := range []int64{0, 9, 10, 12345678901} {
		require.NoError(t, d.Save(ctx, step, numbers(float32(step%97)),
			SaveOptions{Metadata: map[string]string{"input": `{"op":"steps"}`}}))
	}
	steps, err := d.Steps(ctx)
	require.NoError(t, err)
	require.Equal(t, []int64{0, 9, 10, 12345678901}, steps)
	c := latest(t, d)
	require.Equal(t, int64(12345678901), c.Step())
	require.Equal(t, map[string]string{"input": `{"op":"steps"}`}, c.Metadata())
	requireNumbers(t, c, float32(12345678901%97))
	nine, err := d.Open(ctx, 9)
	require.NoError(t, err)
	defer nine.Close()
	requireNumbers(t, nine, 9)
	_, err = d.Open(ctx, 11)
	require.ErrorIs(t, err, ErrNotFound)

	for _, step := range []int64{0, 11, 12345678901} {
		require.ErrorIs(t, d.Save(ctx, step, numbers(1), SaveOptions{}), ErrStepOrder)
	}
	require.Error(t, d.Save(ctx, -1, numbers(1), SaveOptions{}))
	require.NoError(t, d.RemoveAfter(ctx, 9))
	require.NoError(t, d.Save(ctx, 11, numbers(1), SaveOptions{}))
	require.Equal(t, []string{ownerObject, "step-0000000000", "step-0000000009", "step-0000000011"}, names(t, d.Dir()))
}

func TestAForeignEntryIsNoCheckpoint(t *testing.T) {
	ctx := context.Background()
	d := newRun(t, ManagerOptions{})
	require.NoError(t, d.Save(ctx, 3, numbers(3), SaveOptions{}))
	for _, name := range []string{"step-9", "step-00000000009", "step-", "step--000000001", "step-99999999999999999999",
		"other"} {
		require.NoError(t, os.Mkdir(filepath.Join(d.Dir(), name), 0o755))
	}
	require.NoError(t, os.WriteFile(filepath.Join(d.Dir(), "step-0000000007"), nil, 0o644))
	steps, err := d.Steps(ctx)
	require.NoError(t, err)
	require.Equal(t, []int64{3}, steps)
}

func TestAFolderWithAStepsNameAloneBlocksNothing(t *testing.T) {
	ctx := context.Background()
	d := newRun(t, ManagerOptions{Retention: Retention{Last: 1}})
	for _, step := range []int64{2, math.MaxInt64} {
		require.NoError(t, os.Mkdir(filepath.Join(d.Dir(), stepName(step)), 0o755))
	}
	require.NoError(t, os.WriteFile(filepath.Join(d.Dir(), stepName(math.MaxInt64), "other"), nil, 0o644))
	for step := int64(1); step < 4; step++ {
		require.NoError(t, d.Save(ctx, step, numbers(float32(step)), SaveOptions{}), "step %d", step)
		requireNumbers(t, latest(t, d), float32(step))
	}
	require.Equal(t, []string{ownerObject, "step-0000000003", "step-9223372036854775807"}, names(t, d.Dir()))
}

func TestAZeroCheckpointIsClosed(t *testing.T) {
	ctx := context.Background()
	var c Checkpoint
	require.NoError(t, c.Close())
	require.ErrorIs(t, c.Verify(ctx), ErrClosed)
	_, err := c.Tensor(ctx, "/a")
	require.ErrorIs(t, err, ErrClosed)
	require.ErrorIs(t, c.Restore(ctx, Group{}, RestoreOptions{}), ErrClosed)
	require.Empty(t, c.Variables())
}
