package checkpoint

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// One changed bit in the header of a shard file is reported as damage with the name of the file by
// Verify, Restore (also without verification), Tensor, Export and LatestIntact.
func TestAChangedBitInTheHeaderOfAShardFileIsDamage(t *testing.T) {
	ctx := context.Background()
	d := newRun(t, ManagerOptions{})
	require.NoError(t, d.Save(ctx, 1, numbers(1), SaveOptions{}))
	require.NoError(t, d.Save(ctx, 2, numbers(2), SaveOptions{Metadata: map[string]string{"position": "two"}}))
	found, err := filepath.Glob(filepath.Join(d.Dir(), stepName(2), "*", "host-0000.safetensors"))
	require.NoError(t, err)
	require.Len(t, found, 1)
	path := found[0]
	intact, err := os.ReadFile(path)
	require.NoError(t, err)
	const headerBytes = alignment
	require.Greater(t, len(intact), headerBytes)
	requireDamage := func(err error, what string, bit int) {
		t.Helper()
		require.ErrorIs(t, err, ErrCorrupt, "%s, bit %d", what, bit)
		require.ErrorContains(t, err, path)
		require.ErrorContains(t, err, "header")
	}
	exported := filepath.Join(t.TempDir(), "exported.safetensors")
	const step = 13 // testing every bit would take half a minute
	for bit := 0; bit < 8*headerBytes; bit += step {
		damaged := append([]byte(nil), intact...)
		damaged[bit/8] ^= 1 << (bit % 8)
		require.NoError(t, os.WriteFile(path, damaged, 0o644))
		calls := map[string]func(c *Checkpoint, g Group) error{
			"Verify": func(c *Checkpoint, _ Group) error { return c.Verify(ctx) },
		}
		if bit%(101*step) == 0 {
			calls["VerifyShare"] = func(c *Checkpoint, _ Group) error { return c.VerifyShard(ctx, 0, 2) }
			calls["Restore"] = func(c *Checkpoint, g Group) error { return c.Restore(ctx, g, RestoreOptions{}) }
			calls["Restore without verification"] = func(c *Checkpoint, g Group) error {
				return c.Restore(ctx, g,
					RestoreOptions{SkipVerify: true})
			}
			calls["Tensor"] = func(c *Checkpoint, _ Group) error { _, err := c.Tensor(ctx, "/a"); return err }
			calls["Export"] = func(c *Checkpoint, _ Group) error { return c.Export(ctx, exported, ExportOptions{}) }
		}
		for what, call := range calls {
			c, err := d.Open(ctx, 2)
			require.NoError(t, err)
			g := numbers(-1)
			requireDamage(call(c, g), what, bit)
			require.Equal(t, float32(-1), g.Variables[1].(*memory).value.Value(), "nothing is restored")
			require.NoError(t, c.Close())
		}
		require.NoFileExists(t, exported)
	}
	c, passed, err := d.LatestIntact(ctx)
	require.NoError(t, err)
	require.Equal(t, int64(1), c.Step())
	require.NoError(t, c.Close())
	require.Len(t, passed, 1)
	requireDamage(passed[0], "LatestIntact", 0)

	require.NoError(t, os.WriteFile(path, intact, 0o644))
	requireStep(t, d.Manager, 2, 2)
}

// The header of a shard file without any variable is verified too.
func TestTheHeaderOfAFileWithoutVariablesIsVerified(t *testing.T) {
	ctx := context.Background()
	d := newRun(t, ManagerOptions{})
	require.NoError(t, d.Save(ctx, 1, Group{}, SaveOptions{}))
	found, err := filepath.Glob(filepath.Join(d.Dir(), stepName(1), "*", "host-0000.safetensors"))
	require.NoError(t, err)
	require.Len(t, found, 1)
	data, err := os.ReadFile(found[0])
	require.NoError(t, err)
	data[len(data)-1] ^= 1
	require.NoError(t, os.WriteFile(found[0], data, 0o644))
	for _, skip := range []bool{false, true} {
		c, err := d.Open(ctx, 1)
		require.NoError(t, err)
		require.ErrorIs(t, c.Verify(ctx), ErrCorrupt)
		require.ErrorIs(t, c.Restore(ctx, Group{}, RestoreOptions{SkipVerify: skip}), ErrCorrupt)
		require.NoError(t, c.Close())
	}
}
