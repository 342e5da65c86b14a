package checkpoint

import (
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/internal/safetensors"
)

// restoreOf opens and restores a checkpoint into fresh variables.
func restoreOf(path string) (Group, error) {
	g := numbers(-1)
	c, err := Open(path)
	if err != nil {
		return g, err
	}
	defer c.Close()
	return g, c.Restore(context.Background(), g, RestoreOptions{})
}

func TestEveryFlippedByteAndEveryCutIsRefused(t *testing.T) {
	d := newDirectory(t, Options{})
	require.NoError(t, d.Save(context.Background(), 1, numbers(1), SaveOptions{Metadata: map[string]string{"k": "v"}}))
	dir := filepath.Join(d.Path(), stepName(1))
	rng := rand.New(rand.NewPCG(3, 4))
	for _, name := range []string{variablesFile, manifestFile} {
		path := filepath.Join(dir, name)
		whole, err := os.ReadFile(path)
		require.NoError(t, err)
		refuse := func(damaged []byte, what string, at int) {
			t.Helper()
			require.NoError(t, os.WriteFile(path, damaged, 0o644))
			g, err := restoreOf(dir)
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
		_, err = restoreOf(dir)
		require.ErrorIs(t, err, ErrCorrupt, "%s is missing", name)
		require.NoError(t, os.WriteFile(path, whole, 0o644))
		_, err = restoreOf(dir)
		require.NoError(t, err)
	}
}

func TestADamagedTensorIsNamed(t *testing.T) {
	ctx := context.Background()
	d := newDirectory(t, Options{})
	require.NoError(t, d.Save(ctx, 1, numbers(1), SaveOptions{}))
	path := filepath.Join(d.Path(), stepName(1), variablesFile)
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
	require.Equal(t, []float32{1, 1, 1}, a.Value())
	_, err = c.Tensor(ctx, "/none")
	require.ErrorIs(t, err, ErrNone)
}

func TestLatestIntactPassesDamageOver(t *testing.T) {
	ctx := context.Background()
	d := newDirectory(t, Options{})
	_, _, err := d.LatestIntact(ctx)
	require.ErrorIs(t, err, ErrNone)
	for step := range int64(4) {
		require.NoError(t, d.Save(ctx, step, numbers(float32(step)), SaveOptions{}))
	}
	require.NoError(t, os.Truncate(filepath.Join(d.Path(), stepName(3), manifestFile), 20))
	path := filepath.Join(d.Path(), stepName(2), variablesFile)
	whole, err := os.ReadFile(path)
	require.NoError(t, err)
	whole[len(whole)-2] ^= 8
	require.NoError(t, os.WriteFile(path, whole, 0o644))
	_, err = d.Latest()
	require.ErrorIs(t, err, ErrCorrupt)
	c, passed, err := d.LatestIntact(ctx)
	require.NoError(t, err)
	defer c.Close()
	require.Equal(t, int64(1), c.Step())
	require.Len(t, passed, 2)
	requireNumbers(t, c, 1)
}

func TestOfALaterFormatIsUnsupported(t *testing.T) {
	m := &manifest{Format: formatName, Version: formatVersion + 1}
	data, err := m.encode()
	require.NoError(t, err)
	_, err = parseManifest(data)
	require.ErrorIs(t, err, errors.ErrUnsupported)
}

func FuzzManifest(f *testing.F) {
	for _, m := range []*manifest{
		{Format: formatName, Version: formatVersion},
		{Format: formatName, Version: formatVersion, Step: 12, Metadata: map[string]string{"a": "b"}, Bytes: 100, CRC32C: 1,
			Variables: []savedVariable{{Path: "/a", Tensor: "a", CRC32C: 5, Trainable: true, Synchronization: "ON_READ", Aggregation: "SUM"}}},
		{Format: "other", Version: 7},
	} {
		data, err := m.encode()
		require.NoError(f, err)
		f.Add(data)
	}
	f.Add([]byte(`{"crc32c":"00000000","checkpoint":null}`))
	f.Add([]byte(`{}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		_, _ = parseManifest(body)
		// With the checksum put right, the body itself is parsed.
		m, err := parseManifest([]byte(`{"crc32c":"` + checksum(0).plus(body).String() + `","checkpoint":` + string(body) + `}`))
		if err != nil {
			return
		}
		data, err := m.encode()
		require.NoError(t, err)
		again, err := parseManifest(data)
		require.NoError(t, err)
		require.Equal(t, m, again)
	})
}

func TestBytesThatAreNoTruthValuesAreRefused(t *testing.T) {
	path := filepath.Join(t.TempDir(), "flags.safetensors")
	for _, bytes := range [][]byte{{0, 1, 1}, {0, 1, 2}, {255, 0, 0}} {
		f, err := safetensors.Create(path, []safetensors.Spec{{Name: "flags", DType: safetensors.Bool, Shape: []int64{3}}}, nil)
		require.NoError(t, err)
		require.NoError(t, f.Write("flags", bytes))
		require.NoError(t, f.Commit())
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
