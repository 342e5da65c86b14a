package checkpoint

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestCancelledWorkLeavesNothing(t *testing.T) {
	d := newRun(t, ManagerOptions{})
	require.NoError(t, d.Save(context.Background(), 1, numbers(1), SaveOptions{}))
	ctx, cancel := context.WithCancel(context.Background())
	g := numbers(2)
	g.Variables[1].(*memory).read = func() error { cancel(); return nil }
	require.ErrorIs(t, d.Save(ctx, 2, g, SaveOptions{}), context.Canceled)
	require.Equal(t, []string{ownerObject, "step-0000000001"}, names(t, d.Dir()))
	c := latest(t, d)
	require.ErrorIs(t, c.Verify(ctx), context.Canceled)
	require.ErrorIs(t, c.Restore(ctx, numbers(0), RestoreOptions{}), context.Canceled)
	require.ErrorIs(t, c.Restore(ctx, numbers(0), RestoreOptions{SkipVerify: true}), context.Canceled)
}

func TestASaveIsToldToWhoStartsTheProgramAgain(t *testing.T) {
	path := filepath.Join(t.TempDir(), "saved")
	t.Setenv(progressFileVariable, path)
	d := newRun(t, ManagerOptions{})
	require.NoFileExists(t, path)
	for _, step := range []int64{1, 20} {
		require.NoError(t, d.Save(context.Background(), step, numbers(1), SaveOptions{}))
		said, err := os.ReadFile(path)
		require.NoError(t, err)
		require.Equal(t, fmt.Sprintln(step), string(said))
	}
	ctx, cancel := context.WithCancel(context.Background())
	g := numbers(2)
	g.Variables[1].(*memory).read = func() error { cancel(); return nil }
	require.Error(t, d.Save(ctx, 30, g, SaveOptions{}))
	said, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, "20\n", string(said), "a save that failed is not told")
}
