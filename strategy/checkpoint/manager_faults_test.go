package checkpoint

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/storage"
)

// faultyStore is a store whose n-th call fails.
type faultyStore struct {
	storage.Store
	calls int
	at    int // 1 is the first call; 0 means never
	what  func(ctx context.Context, name string, write func(io.Writer) error) error
}

func (f *faultyStore) now() bool {
	f.calls++
	return f.calls == f.at
}

func (f *faultyStore) Put(ctx context.Context, name string, opts storage.PutOptions,
	write func(io.Writer) error) error {
	if f.now() {
		return f.what(ctx, name, write)
	}
	return f.Store.Put(ctx, name, opts, write)
}

func (f *faultyStore) Open(ctx context.Context, name string) (storage.Object, error) {
	if f.now() {
		return nil, errors.New("the network is down")
	}
	return f.Store.Open(ctx, name)
}

func (f *faultyStore) List(ctx context.Context, prefix string) ([]storage.Info, error) {
	if f.now() {
		return nil, errors.New("the network is down")
	}
	return f.Store.List(ctx, prefix)
}

func (f *faultyStore) Remove(ctx context.Context, name string) error {
	if f.now() {
		return errors.New("the network is down")
	}
	return f.Store.Remove(ctx, name)
}

// Each call to the store fails in turn. The existing checkpoints remain complete, and the next save
// removes the rest.
func TestAFaultAtAnyCallKeepsTheCheckpointsBefore(t *testing.T) {
	ctx := context.Background()
	for name, what := range map[string]func(ctx context.Context, name string, write func(io.Writer) error) error{
		"the disk is full": func(context.Context, string, func(io.Writer) error) error { return syscall.ENOSPC },
		"it fails half way": func(_ context.Context, _ string, write func(io.Writer) error) error {
			return errors.Join(write(&cut{left: 100}), errors.New("cut"))
		},
	} {
		failures := 0
		for at := 1; ; at++ {
			dir := t.TempDir()
			s, err := storage.Directory(dir)
			require.NoError(t, err)
			f := &faultyStore{Store: s, what: what}
			m := managerOf(t, f, ManagerOptions{Retention: Retention{Last: 2}})
			for step := int64(1); step <= 2; step++ {
				require.NoError(t, m.Save(ctx, step, numbers(float32(step)), SaveOptions{}))
				require.NoError(t, m.Wait(ctx))
			}
			f.calls, f.at = 0, at
			require.NoError(t, m.Save(ctx, 3, numbers(3), SaveOptions{}))
			err = m.Wait(ctx)
			if f.calls < at {
				require.NoError(t, err)
				break
			}
			failures++
			var of *BackgroundError
			if err != nil {
				require.ErrorAs(t, err, &of, "%s at call %d", name, at)
			}
			f.at = 0
			last, passed, opening := m.LatestIntact(ctx)
			require.NoError(t, opening, "%s at call %d", name, at)
			require.Empty(t, passed)
			require.GreaterOrEqual(t, last.Step(), int64(2))
			require.NoError(t, last.Close())
			if last.Step() == 3 {
				requireStep(t, m, 3, 3)
			} else {
				require.Error(t, err)
				requireStep(t, m, 1, 1)
			}
			require.NoError(t, m.Save(ctx, 4, numbers(4), SaveOptions{}))
			require.NoError(t, m.Close(), "%s at call %d", name, at)
			requireWhole(t, s, 2)
		}
		require.Greater(t, failures, 5)
	}
}

// cut is a writer that accepts a limited number of bytes.
type cut struct{ left int }

func (c *cut) Write(p []byte) (int, error) {
	if c.left -= len(p); c.left < 0 {
		return 0, syscall.ENOSPC
	}
	return len(p), nil
}

// requireWhole checks that a store has at most most checkpoints, that all are complete, and that it
// has no other objects.
func requireWhole(t testing.TB, s storage.Store, most int) {
	t.Helper()
	ctx := context.Background()
	m := managerOf(t, s, ManagerOptions{})
	steps, err := m.Steps(ctx)
	require.NoError(t, err)
	require.LessOrEqual(t, len(steps), most)
	want := map[string]bool{ownerObject: true}
	for _, step := range steps {
		c, err := m.Open(ctx, step)
		require.NoError(t, err)
		require.NoError(t, c.Verify(ctx))
		want[manifestName(step)] = true
		for host := range c.sharded.Hosts {
			want[partName(step, c.sharded.Save, host)], want[shardsName(step, c.sharded.Save, host)] = true, true
		}
		require.NoError(t, c.Close())
	}
	all, err := s.List(ctx, "")
	require.NoError(t, err)
	for _, info := range all {
		assert.True(t, want[info.Name], "%s is left over", info.Name)
	}
	assert.Len(t, all, len(want))
	require.NoError(t, filepath.WalkDir(s.String(), func(path string, e os.DirEntry, err error) error {
		assert.False(t, strings.HasPrefix(e.Name(), ".put-"), "%s is left over", path)
		return err
	}))
}

// Two runs save to one store.
func TestAnotherRunIsNotMixedIn(t *testing.T) {
	ctx := context.Background()
	s, err := storage.Directory(t.TempDir())
	require.NoError(t, err)
	one := managerOf(t, s, ManagerOptions{})
	require.NoError(t, one.Save(ctx, 1, numbers(1), SaveOptions{}))
	require.NoError(t, one.Wait(ctx))
	two := managerOf(t, s, ManagerOptions{TakeOver: true})
	require.NoError(t, two.Save(ctx, 2, numbers(2), SaveOptions{}))
	require.NoError(t, two.Wait(ctx))
	require.NoError(t, one.Save(ctx, 3, numbers(30), SaveOptions{}))
	var owner *OwnerError
	require.ErrorAs(t, one.Wait(ctx), &owner)
	require.ErrorIs(t, owner, ErrBusy)
	require.NoError(t, two.Save(ctx, 3, numbers(3), SaveOptions{}))
	require.NoError(t, two.Wait(ctx))
	requireStep(t, two, 3, 3)
	requireWhole(t, s, 3)
}

// lying is a store with an outdated listing: it omits existing objects or shows missing ones.
type lying struct {
	storage.Store
	hide, show string
}

func (l *lying) List(ctx context.Context, prefix string) (all []storage.Info, err error) {
	there, err := l.Store.List(ctx, prefix)
	for _, info := range there {
		if l.hide == "" || !strings.Contains(info.Name, l.hide) {
			all = append(all, info)
		}
	}
	if l.show != "" {
		all = append(all, storage.Info{Name: l.show, Size: 5, Modified: time.Now()})
	}
	return all, err
}

func TestAListingThatLiesLosesNothing(t *testing.T) {
	ctx := context.Background()
	s, err := storage.Directory(t.TempDir())
	require.NoError(t, err)
	l := &lying{Store: s}
	m := managerOf(t, l, ManagerOptions{})
	require.NoError(t, m.Save(ctx, 1, numbers(1), SaveOptions{}))
	require.NoError(t, m.Wait(ctx))
	// Shards whose manifests are not listed are not leftovers.
	l.hide = manifestFile
	require.NoError(t, m.Save(ctx, 2, numbers(2), SaveOptions{}))
	require.NoError(t, m.Wait(ctx))
	l.hide = ""
	requireStep(t, m, 1, 1)
	requireStep(t, m, 2, 2)
	// A new run with a listing without step 2 does not overwrite it.
	l.hide = stepName(2)
	other := managerOf(t, l, ManagerOptions{TakeOver: true})
	require.NoError(t, other.Save(ctx, 2, numbers(9), SaveOptions{}))
	require.ErrorIs(t, other.Wait(ctx), ErrBusy)
	l.hide = ""
	requireStep(t, m, 2, 2)
	// A checkpoint that is listed but missing is skipped.
	l.show = manifestName(7)
	c, passed, err := m.LatestIntact(ctx)
	require.NoError(t, err)
	require.EqualValues(t, 2, c.Step())
	require.Len(t, passed, 1)
	require.NoError(t, c.Close())
}

// The store writes the manifest and reports that it already existed.
func TestALostAnswerIsNoFailure(t *testing.T) {
	ctx := context.Background()
	s, err := storage.Directory(t.TempDir())
	require.NoError(t, err)
	m := managerOf(t, &forgetful{s}, ManagerOptions{})
	require.NoError(t, m.Save(ctx, 1, numbers(1), SaveOptions{}))
	require.NoError(t, m.Wait(ctx))
	requireStep(t, m, 1, 1)
}

type forgetful struct{ storage.Store }

func (f *forgetful) Put(ctx context.Context, name string, opts storage.PutOptions, write func(io.Writer) error) error {
	err := f.Store.Put(ctx, name, opts, write)
	if err == nil && opts.IfAbsent {
		return storage.WrapError("put", name, f, storage.ErrExists)
	}
	return err
}

// The test kills a process that saves continuously, at random times, and checks the files. An
// environment variable sets the number of kills.
func TestManyKillsInTheBackground(t *testing.T) {
	if dir := os.Getenv("CHECKPOINT_SAVE_TO"); dir != "" {
		saveWithoutEnd(t, dir)
		return
	}
	kills := 6
	if n, err := strconv.Atoi(os.Getenv("CHECKPOINT_KILLS")); err == nil {
		kills = n
	}
	ctx := context.Background()
	dir := t.TempDir()
	s, err := storage.Directory(dir)
	require.NoError(t, err)
	last := int64(-1)
	for i := range kills {
		cmd := exec.Command(os.Args[0], "-test.run=^TestManyKillsInTheBackground$")
		cmd.Env = append(os.Environ(), "CHECKPOINT_SAVE_TO="+dir)
		var said strings.Builder
		cmd.Stdout = &said
		require.NoError(t, cmd.Start())
		first := last // it saves a checkpoint first
		deadline := time.Now().Add(time.Minute)
		for first <= last && time.Now().Before(deadline) {
			time.Sleep(2 * time.Millisecond)
			steps, err := managerOf(t, s, ManagerOptions{}).Steps(ctx)
			require.NoError(t, err)
			if len(steps) > 0 {
				first = steps[len(steps)-1]
			}
		}
		time.Sleep(time.Duration(i*i*37%41) * time.Millisecond)
		require.NoError(t, cmd.Process.Kill())
		_ = cmd.Wait()
		m := managerOf(t, s, ManagerOptions{})
		steps, err := m.Steps(ctx)
		require.NoError(t, err)
		require.NotEmpty(t, steps)
		for _, step := range steps {
			requireStep(t, m, step, float32(step))
		}
		require.Greater(t, steps[len(steps)-1], last)
		for line := range strings.Lines(said.String()) {
			var saved int64
			if _, err := fmt.Sscanf(line, "saved %d", &saved); err == nil {
				require.GreaterOrEqual(t, steps[len(steps)-1], saved, "what was said to be saved is there")
			}
		}
		last = steps[len(steps)-1]
	}
	m := managerOf(t, s, ManagerOptions{Retention: Retention{Last: 2}})
	require.NoError(t, m.Save(ctx, last+1, numbers(float32(last+1)), SaveOptions{}))
	require.NoError(t, m.Close())
	requireWhole(t, s, 2)
}

// saveWithoutEnd continues from the last checkpoint and saves until it is killed.
func saveWithoutEnd(t *testing.T, dir string) {
	ctx := context.Background()
	m := newManager(t, dir, ManagerOptions{Retention: Retention{Last: 3}})
	step := m.lastKnownStep()
	if step >= 0 {
		requireStep(t, m, step, float32(step))
	}
	for {
		step++
		require.NoError(t, m.Save(ctx, step, numbers(float32(step)), SaveOptions{}))
		if step%2 == 0 {
			require.NoError(t, m.Wait(ctx))
			fmt.Println("saved", step)
		}
	}
}

// A run was killed while it wrote its owner's record.
func TestTheNextRunClearsAHalfOwnersRecord(t *testing.T) {
	dir := t.TempDir()
	left := filepath.Join(dir, ".put-HALF")
	require.NoError(t, os.WriteFile(left, []byte("{"), 0o600))
	s, err := storage.Directory(dir)
	require.NoError(t, err)
	m, err := NewManager(context.Background(), s, ManagerOptions{})
	require.NoError(t, err)
	require.NoError(t, m.becomeOwner(context.Background()))
	require.NoError(t, m.Close())
	require.NoFileExists(t, left)
	require.FileExists(t, filepath.Join(dir, ownerObject))
}
