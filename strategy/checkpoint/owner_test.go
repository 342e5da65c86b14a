package checkpoint

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/internal/hostfacts"
)

func TestTwoRunsDoNotMixTheirCheckpoints(t *testing.T) {
	ctx := context.Background()
	first := newRun(t, ManagerOptions{})
	again := func(opts ManagerOptions) run { return runIn(t, first.Dir(), opts) }
	second := again(ManagerOptions{})
	require.NoError(t, first.Save(ctx, 1, numbers(1), SaveOptions{}))
	err := second.Save(ctx, 2, numbers(2), SaveOptions{})
	var owner *OwnerError
	require.ErrorAs(t, err, &owner)
	require.ErrorIs(t, err, ErrBusy)
	assert.Equal(t, os.Getpid(), owner.PID)
	assert.EqualValues(t, 1, owner.Step)
	assert.False(t, owner.Running, "it is this process")
	assert.ErrorContains(t, err, first.Dir())
	require.ErrorIs(t, second.RemoveAfter(ctx, 0), ErrBusy)
	require.NoError(t, first.Save(ctx, 3, numbers(3), SaveOptions{}), "the first goes on")

	// A run that continues from the other run's checkpoint becomes the owner.
	require.NoError(t, latest(t, second).Close())
	require.NoError(t, second.Save(ctx, 4, numbers(4), SaveOptions{}))
	require.ErrorAs(t, first.Save(ctx, 5, numbers(5), SaveOptions{}), &owner)
	third := again(ManagerOptions{})
	require.NoError(t, third.Save(ctx, 5, numbers(5), SaveOptions{}))
	require.ErrorAs(t, second.Save(ctx, 6, numbers(6), SaveOptions{}), &owner)
	require.NoError(t, again(ManagerOptions{TakeOver: true}).Save(ctx, 6, numbers(6), SaveOptions{}))
	steps, err := first.Steps(ctx)
	require.NoError(t, err)
	require.Equal(t, []int64{1, 3, 4, 5, 6}, steps)
}

// TestSaverThatStays saves once and waits for its parent.
func TestSaverThatStays(t *testing.T) {
	dir := os.Getenv("CHECKPOINT_TEST_STAY_IN")
	if dir == "" {
		t.Skip("run by TestAProcessThatRunsOwnsItsDirectory")
	}
	require.NoError(t, runIn(t, dir, ManagerOptions{}).Save(context.Background(), 1, numbers(1), SaveOptions{}))
	os.Stdout.WriteString("saved\n")
	os.Stdin.Read(make([]byte, 1))
}

func TestAProcessThatRunsOwnsItsDirectory(t *testing.T) {
	if processStartTime(os.Getpid()) == "" {
		t.Skip("the system does not tell processes apart")
	}
	ctx := context.Background()
	dir := filepath.Join(t.TempDir(), "run")
	saver := exec.Command(os.Args[0], "-test.run=^TestSaverThatStays$")
	saver.Env = append(os.Environ(), "CHECKPOINT_TEST_STAY_IN="+dir)
	in, err := saver.StdinPipe()
	require.NoError(t, err)
	out, err := saver.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, saver.Start())
	_, err = out.Read(make([]byte, 100))
	require.NoError(t, err)

	d := runIn(t, dir, ManagerOptions{})
	requireNumbers(t, latest(t, d), 1)
	err = d.Save(ctx, 2, numbers(2), SaveOptions{})
	var owner *OwnerError
	require.ErrorAs(t, err, &owner)
	assert.Equal(t, saver.Process.Pid, owner.PID)
	assert.True(t, owner.Running)
	assert.ErrorContains(t, err, "still runs")
	assert.False(t, owner.Since.IsZero())
	require.NoError(t, in.Close())
	require.NoError(t, saver.Wait())
	require.NoError(t, runIn(t, dir, ManagerOptions{}).Save(ctx, 2, numbers(2), SaveOptions{}), "its process has ended")
}

func TestARecordThatIsNotWholeSaysNothing(t *testing.T) {
	ctx := context.Background()
	for _, content := range []string{"", "x", "{", `{"id":""}`, `{"id":"x","pid":-1}`, `{"id":"x","boot":"` +
		hostfacts.BootID() + `","pid":1,"started":"x"}`, strings.Repeat("x", 2*maxOwnerBytes)} {
		d := newRun(t, ManagerOptions{})
		require.NoError(t, os.WriteFile(filepath.Join(d.Dir(), ownerObject), []byte(content), 0o644))
		require.NoError(t, d.Save(ctx, 1, numbers(1), SaveOptions{}), content)
		require.NoError(t, d.Save(ctx, 2, numbers(1), SaveOptions{}), content)
	}
}
