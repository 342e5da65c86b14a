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

	"github.com/stretchr/testify/require"
)

// faulty is a filesystem whose n-th change fails, as does all that follows if it is dead: a process
// that was killed there.
type faulty struct {
	osFilesystem
	n, done int
	err     error
	dead    bool
}

func (f *faulty) fail() error {
	f.done++
	if f.done == f.n || f.dead && f.done > f.n {
		return f.err
	}
	return nil
}

func (f *faulty) Mkdir(path string) error {
	if err := f.fail(); err != nil {
		return err
	}
	return f.osFilesystem.Mkdir(path)
}

func (f *faulty) Create(path string) (writeFile, error) {
	if err := f.fail(); err != nil {
		return nil, err
	}
	w, err := f.osFilesystem.Create(path)
	return &faultyFile{w, f}, err
}

func (f *faulty) Rename(from, to string) error {
	if err := f.fail(); err != nil {
		return err
	}
	return f.osFilesystem.Rename(from, to)
}

func (f *faulty) RemoveAll(path string) error {
	if err := f.fail(); err != nil {
		return err
	}
	return f.osFilesystem.RemoveAll(path)
}

func (f *faulty) SyncDir(path string) error {
	if err := f.fail(); err != nil {
		return err
	}
	return f.osFilesystem.SyncDir(path)
}

type faultyFile struct {
	writeFile
	fs *faulty
}

// Write writes half of p when it fails.
func (f *faultyFile) Write(p []byte) (int, error) {
	err := f.fs.fail()
	if err == nil {
		return f.writeFile.Write(p)
	}
	n, _ := f.writeFile.Write(p[:len(p)/2])
	if errors.Is(err, io.ErrShortWrite) {
		err = nil // the caller has to notice
	}
	return n, err
}

func (f *faultyFile) Sync() error {
	if err := f.fs.fail(); err != nil {
		return err
	}
	return f.writeFile.Sync()
}

func (f *faultyFile) Close() error {
	err := f.writeFile.Close()
	return errors.Join(err, f.fs.fail())
}

func TestAFaultAtAnyPointKeepsThePreviousCheckpoint(t *testing.T) {
	ctx := context.Background()
	for _, kind := range []struct {
		name string
		err  error
		dead bool
	}{{"no space", syscall.ENOSPC, false}, {"i/o error", syscall.EIO, false}, {"short write", io.ErrShortWrite, false}, {"killed", errors.New("killed"), true}} {
		points := 0
		for n := 1; ; n++ {
			d := newDirectory(t, Options{Keep: 1})
			require.NoError(t, d.Save(ctx, 1, numbers(1), SaveOptions{}))
			fs := &faulty{n: n, err: kind.err, dead: kind.dead}
			d.fs = fs
			err := d.Save(ctx, 2, numbers(2), SaveOptions{})
			if fs.done < n {
				require.NoError(t, err)
				break
			}
			points++
			require.Error(t, err, "%s at %d", kind.name, n)
			require.ErrorIs(t, err, kind.err, "%s at %d", kind.name, n)
			want := int64(1)
			if errors.Is(err, ErrKept) || kind.dead && has(t, d, 2) {
				want = 2
			}
			c := latest(t, d)
			require.Equal(t, want, c.Step(), "%s at %d: %v", kind.name, n, err)
			requireNumbers(t, c, float32(want))
			// The next save works, and clears away what is left.
			d.fs = osFilesystem{}
			require.NoError(t, d.Save(ctx, 3, numbers(3), SaveOptions{}))
			require.Equal(t, []string{lockFile, "step-0000000003"}, names(t, d.Path()), "%s at %d", kind.name, n)
			requireNumbers(t, latest(t, d), 3)
		}
		// Two files with a write, a sync and a close each; directories, renames.
		require.GreaterOrEqual(t, points, 12, kind.name)
	}
}

func has(t *testing.T, d *Directory, step int64) bool {
	steps, err := d.Steps()
	require.NoError(t, err)
	for _, s := range steps {
		if s == step {
			return true
		}
	}
	return false
}

// TestKilledSaver is the process that TestAKilledProcessKeepsThePreviousCheckpoint kills: it saves
// one step after another.
func TestKilledSaver(t *testing.T) {
	dir := os.Getenv("CHECKPOINT_TEST_SAVE_TO")
	if dir == "" {
		t.Skip("run by TestAKilledProcessKeepsThePreviousCheckpoint")
	}
	d, err := OpenDirectory(dir, Options{Keep: 2})
	require.NoError(t, err)
	steps, err := d.Steps()
	require.NoError(t, err)
	next := int64(0)
	if len(steps) > 0 {
		next = steps[len(steps)-1] + 1
	}
	for step := next; ; step++ {
		require.NoError(t, d.Save(context.Background(), step, numbers(float32(step)), SaveOptions{}))
		fmt.Println("saved", step)
	}
}

func TestAKilledProcessKeepsThePreviousCheckpoint(t *testing.T) {
	ctx := context.Background()
	d := newDirectory(t, Options{Keep: 2})
	for round := range 12 {
		var out strings.Builder
		saver := exec.Command(os.Args[0], "-test.run=^TestKilledSaver$", "-test.v")
		saver.Env = append(os.Environ(), "CHECKPOINT_TEST_SAVE_TO="+d.Path())
		saver.Stdout = &out
		require.NoError(t, saver.Start())
		for ok := false; !ok; _, ok = lastSaved(d) { // it has begun
			time.Sleep(time.Millisecond)
		}
		time.Sleep(time.Duration(20+7*round) * time.Millisecond)
		require.NoError(t, saver.Process.Kill())
		_ = saver.Wait()
		claimed := int64(-1)
		for line := range strings.Lines(out.String()) {
			if digits, ok := strings.CutPrefix(strings.TrimSpace(line), "saved "); ok {
				var err error
				claimed, err = strconv.ParseInt(digits, 10, 64)
				require.NoError(t, err)
			}
		}
		c := latest(t, d)
		require.GreaterOrEqual(t, c.Step(), claimed)
		require.NoError(t, c.Verify(ctx))
		requireNumbers(t, c, float32(c.Step()))
	}
	c := latest(t, d)
	require.NoError(t, d.Save(ctx, c.Step()+1, numbers(0), SaveOptions{}), "the lock died with its process")
	for _, name := range names(t, d.Path()) {
		require.True(t, name == lockFile || strings.HasPrefix(name, stepPrefix), filepath.Join(d.Path(), name))
	}
}

func lastSaved(d *Directory) (int64, bool) {
	steps, err := d.Steps()
	if err != nil || len(steps) == 0 {
		return 0, false
	}
	return steps[len(steps)-1], true
}
