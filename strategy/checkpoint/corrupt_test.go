package checkpoint

import (
	"context"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// restoreOf restores a checkpoint into new variables.
func restoreOf(d run, step int64) (Group, error) {
	g := numbers(-1)
	c, err := d.Open(context.Background(), step)
	if err != nil {
		return g, err
	}
	defer c.Close()
	return g, c.Restore(context.Background(), g, RestoreOptions{})
}

// The test damages a single-file checkpoint.
func TestEveryFlippedByteAndEveryCutIsRefused(t *testing.T) {
	d := oldRun(t, ManagerOptions{})
	dir := filepath.Join(d.Dir(), stepName(1))
	rng := rand.New(rand.NewPCG(3, 4))
	for _, name := range []string{variablesFile, manifestFile} {
		path := filepath.Join(dir, name)
		whole, err := os.ReadFile(path)
		require.NoError(t, err)
		refuse := func(damaged []byte, what string, at int) {
			t.Helper()
			require.NoError(t, os.WriteFile(path, damaged, 0o644))
			g, err := restoreOf(d, 1)
			require.ErrorIs(t, err, ErrCorrupt, "%s: %s at %d", name, what, at)
			var corrupt *CorruptError
			require.ErrorAs(t, err, &corrupt)
			require.Equal(t, float32(-1), g.Variables[1].(*memory).value.Value(), "nothing is restored")
		}
		for at := range whole {
			damaged := append([]byte(nil), whole...)
			damaged[at] ^= byte(1 + rng.IntN(255))
			refuse(damaged, "flip", at)
			refuse(whole[:at], "cut", at)
		}
		refuse(append(append([]byte(nil), whole...), 'x'), "longer", len(whole))
		require.NoError(t, os.Remove(path))
		_, err = restoreOf(d, 1)
		require.ErrorIs(t, err, map[string]error{variablesFile: ErrCorrupt, manifestFile: ErrNotFound}[name], "%s is missing",
			name)
		require.NoError(t, os.WriteFile(path, whole, 0o644))
		_, err = restoreOf(d, 1)
		require.NoError(t, err)
	}
}

func TestADamagedTensorIsNamed(t *testing.T) {
	ctx := context.Background()
	d := oldRun(t, ManagerOptions{})
	path := filepath.Join(d.Dir(), stepName(2), variablesFile)
	whole, err := os.ReadFile(path)
	require.NoError(t, err)
	whole[len(whole)-1] ^= 1 // of the last tensor, /deep/b
	require.NoError(t, os.WriteFile(path, whole, 0o644))
	c := latest(t, d)
	var corrupt *CorruptError
	require.ErrorAs(t, c.Verify(ctx), &corrupt)
	require.Equal(t, "/deep/b", corrupt.Variable)
	require.ErrorAs(t, c.Restore(ctx, numbers(1), RestoreOptions{SkipVerify: true}), &corrupt)
	_, err = c.Tensor(ctx, "/deep/b")
	require.ErrorAs(t, err, &corrupt)
	a, err := c.Tensor(ctx, "/a")
	require.NoError(t, err)
	require.Equal(t, []float32{2, 2, 2}, a.Value())
	_, err = c.Tensor(ctx, "/none")
	require.ErrorIs(t, err, ErrNotFound)
}

func TestLatestIntactPassesDamageOver(t *testing.T) {
	ctx := context.Background()
	_, _, err := newRun(t, ManagerOptions{}).LatestIntact(ctx)
	require.ErrorIs(t, err, ErrNotFound)
	d := oldRun(t, ManagerOptions{})
	require.NoError(t, d.Save(ctx, 3, numbers(3), SaveOptions{}))
	require.NoError(t, os.Truncate(filepath.Join(d.Dir(), stepName(3), manifestFile), 20))
	path := filepath.Join(d.Dir(), stepName(2), variablesFile)
	whole, err := os.ReadFile(path)
	require.NoError(t, err)
	whole[len(whole)-2] ^= 8
	require.NoError(t, os.WriteFile(path, whole, 0o644))
	_, err = d.Latest(ctx)
	require.ErrorIs(t, err, ErrCorrupt)
	c, passed, err := d.LatestIntact(ctx)
	require.NoError(t, err)
	defer c.Close()
	require.Equal(t, int64(1), c.Step())
	require.Len(t, passed, 2)
	requireNumbers(t, c, 1)
}
