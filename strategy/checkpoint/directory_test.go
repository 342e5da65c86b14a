package checkpoint

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestSavesAreListedOpenedAndTakeTurns(t *testing.T) {
	ctx := context.Background()
	d := newDirectory(t, Options{})
	_, err := d.Latest()
	require.ErrorIs(t, err, ErrNone)
	for _, step := range []int64{0, 9, 10, 12345678901} {
		require.NoError(t, d.Save(ctx, step, numbers(float32(step%97)), SaveOptions{Metadata: map[string]string{"input": `{"op":"steps"}`}}))
	}
	steps, err := d.Steps()
	require.NoError(t, err)
	require.Equal(t, []int64{0, 9, 10, 12345678901}, steps)
	c := latest(t, d)
	require.Equal(t, int64(12345678901), c.Step())
	require.Equal(t, map[string]string{"input": `{"op":"steps"}`}, c.Metadata())
	requireNumbers(t, c, float32(12345678901%97))
	nine, err := d.Open(9)
	require.NoError(t, err)
	defer nine.Close()
	requireNumbers(t, nine, 9)
	_, err = d.Open(11)
	require.ErrorIs(t, err, ErrNone)
	_, err = Open(d.Path())
	require.ErrorIs(t, err, ErrNone)
	require.ErrorContains(t, err, "OpenDirectory")
	_, err = Open(filepath.Join(d.Path(), "elsewhere"))
	require.ErrorIs(t, err, ErrNone)

	for _, step := range []int64{0, 11, 12345678901} {
		require.ErrorIs(t, d.Save(ctx, step, numbers(1), SaveOptions{}), ErrStep)
	}
	require.Error(t, d.Save(ctx, -1, numbers(1), SaveOptions{}))
	require.NoError(t, d.RemoveAfter(9))
	require.NoError(t, d.Save(ctx, 11, numbers(1), SaveOptions{}))
	require.Equal(t, []string{lockFile, "step-0000000000", "step-0000000009", "step-0000000011"}, names(t, d.Path()))
}

func TestKeepLeavesTheNewest(t *testing.T) {
	d := newDirectory(t, Options{Keep: 2})
	for step := range int64(5) {
		require.NoError(t, d.Save(context.Background(), step, numbers(float32(step)), SaveOptions{}))
	}
	require.Equal(t, []string{lockFile, "step-0000000003", "step-0000000004"}, names(t, d.Path()))
	requireNumbers(t, latest(t, d), 4)
	_, err := OpenDirectory(d.Path(), Options{Keep: -1})
	require.ErrorContains(t, err, "Keep")
}

func TestAForeignEntryIsNoCheckpoint(t *testing.T) {
	d := newDirectory(t, Options{})
	require.NoError(t, d.Save(context.Background(), 3, numbers(3), SaveOptions{}))
	for _, name := range []string{"step-9", "step-00000000009", "step-", "step--000000001", "step-99999999999999999999", "other"} {
		require.NoError(t, os.Mkdir(filepath.Join(d.Path(), name), 0o755))
	}
	require.NoError(t, os.WriteFile(filepath.Join(d.Path(), "step-0000000007"), nil, 0o644))
	steps, err := d.Steps()
	require.NoError(t, err)
	require.Equal(t, []int64{3}, steps)
}

func TestAZeroDirectoryOrCheckpointIsClosed(t *testing.T) {
	ctx := context.Background()
	var d Directory
	_, err := d.Steps()
	require.ErrorIs(t, err, ErrClosed)
	_, err = d.Latest()
	require.ErrorIs(t, err, ErrClosed)
	_, _, err = d.LatestIntact(ctx)
	require.ErrorIs(t, err, ErrClosed)
	require.ErrorIs(t, d.Save(ctx, 1, numbers(1), SaveOptions{}), ErrClosed)
	require.ErrorIs(t, d.RemoveAfter(1), ErrClosed)
	_, err = d.Open(1)
	require.ErrorIs(t, err, ErrClosed)
	var c Checkpoint
	require.NoError(t, c.Close())
	require.ErrorIs(t, c.Verify(ctx), ErrClosed)
	_, err = c.Tensor(ctx, "/a")
	require.ErrorIs(t, err, ErrClosed)
	require.ErrorIs(t, c.Restore(ctx, Group{}, RestoreOptions{}), ErrClosed)
	require.Empty(t, c.Variables())
	require.True(t, errors.Is(errNotOpen, ErrClosed))
}
