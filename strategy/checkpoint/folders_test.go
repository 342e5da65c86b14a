package checkpoint

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// Opening a manager removes folders of steps that have no files. It changes nothing else.
func TestOpeningAManagerRemovesEmptyStepFolders(t *testing.T) {
	ctx := context.Background()
	d := newRun(t, ManagerOptions{})
	require.NoError(t, d.Save(ctx, 1, numbers(1), SaveOptions{}))
	require.NoError(t, d.Close())
	keep := []string{"events", "step-other", stepName(3) + "/save", stepName(1)}
	for _, name := range append([]string{stepName(2), stepName(4) + "/save-1"}, keep...) {
		require.NoError(t, os.MkdirAll(filepath.Join(d.Dir(), name), 0o755))
	}
	require.NoError(t, os.WriteFile(filepath.Join(d.Dir(), stepName(3), "save", ".put-X"), []byte("under way"), 0o644))
	again := runIn(t, d.Dir(), ManagerOptions{})
	require.NoDirExists(t, filepath.Join(d.Dir(), stepName(2)))
	require.NoDirExists(t, filepath.Join(d.Dir(), stepName(4)))
	for _, name := range keep {
		require.DirExists(t, filepath.Join(d.Dir(), name))
	}
	require.FileExists(t, filepath.Join(d.Dir(), stepName(3), "save", ".put-X"))
	requireStep(t, again.Manager, 1, 1)
}

// A save removes empty folders of steps, and so do a retention and RemoveAfter: only the folders of
// checkpoints stay.
func TestRemovedStepsLeaveNoFolder(t *testing.T) {
	ctx := context.Background()
	d := newRun(t, ManagerOptions{Retention: Retention{Last: 2}})
	for step := int64(1); step <= 4; step++ {
		require.NoError(t, os.MkdirAll(filepath.Join(d.Dir(), stepName(step+10), "save"), 0o755))
		require.NoError(t, d.Save(ctx, step, numbers(1), SaveOptions{}))
	}
	require.ElementsMatch(t, []string{stepName(3), stepName(4), ownerObject}, names(t, d.Dir()))
	require.NoError(t, d.RemoveAfter(ctx, 3))
	require.ElementsMatch(t, []string{stepName(3), ownerObject}, names(t, d.Dir()))
}

// A save that is interrupted before the folder has a file leaves no folder.
func TestAnInterruptedSaveLeavesNoEmptyFolder(t *testing.T) {
	ctx := context.Background()
	d := newRun(t, ManagerOptions{})
	require.NoError(t, d.Save(ctx, 1, numbers(1), SaveOptions{}))
	d.Abort()
	require.Error(t, d.Save(ctx, 2, numbers(2), SaveOptions{}))
	require.ElementsMatch(t, []string{stepName(1), ownerObject}, names(t, d.Dir()))
}
