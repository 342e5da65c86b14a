package checkpoint

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/internal/files"
)

// Options configures a directory. The zero value keeps every checkpoint.
type Options struct {
	// Keep is the number of checkpoints to keep: a save removes all but the newest. 0 keeps all. It
	// is max_to_keep of tf.train.CheckpointManager.
	Keep int
	// TakeOver saves even if another run saves to the directory, or has saved there since this run
	// looked: see [OwnerError]. The other run's next save then fails with an OwnerError.
	TakeOver bool
}

// Directory is a directory of checkpoints, with one checkpoint for each saved step, as
// tf.train.CheckpointManager keeps. It is safe for concurrent use; saves take turns.
type Directory struct {
	path     string
	keep     int
	takeOver bool
	fs       filesystem
	self     ownerRecord
	// seen is the last step that this run knows of: one that was there when it opened the
	// directory, that it opened, or that it saved. -1 is none.
	seen atomic.Int64

	mu sync.Mutex // held by what changes the directory
}

// OpenDirectory opens a directory of checkpoints, and makes the directory if it does not exist. It
// reads no checkpoint, and there is nothing to close. A path that is a URL, such as
// "gs://bucket/run", is a [*PathError].
//
// A directory is for one run at a time. A record in the directory's lock file names the run that
// saved last. Save returns an [*OwnerError] while that run's process still runs on this machine,
// and if another run has saved a checkpoint since this Directory was opened that this Directory has
// not opened itself.
func OpenDirectory(path string, opts Options) (*Directory, error) {
	if opts.Keep < 0 {
		return nil, wrong("option Keep", "0 keeps all", "%d checkpoints", opts.Keep)
	}
	if err := files.Local(path); err != nil {
		if of := (*PathError)(nil); errors.As(err, &of) {
			of.Hint = "a Directory is a folder of this machine: open a bucket with storage.Open and save with NewManager, or give the path of a folder"
		}
		return nil, doing("open directory", "", err)
	}
	d := &Directory{path: path, keep: opts.Keep, takeOver: opts.TakeOver, fs: osFilesystem{}, self: newOwner()}
	if err := d.make(filepath.Clean(path)); err != nil {
		return nil, doing("open directory", "", err)
	}
	steps, err := d.Steps()
	if err != nil {
		return nil, err
	}
	d.seen.Store(-1)
	d.saw(steps...)
	return d, nil
}

// saw notes steps that this run knows of.
func (d *Directory) saw(steps ...int64) {
	for _, step := range steps {
		for known := d.seen.Load(); step > known && !d.seen.CompareAndSwap(known, step); known = d.seen.Load() {
		}
	}
}

// errNotOpen is the error of the zero Directory.
var errNotOpen = error(&errkind.Fault{Match: ErrClosed, Reason: "the directory was not opened", Hint: "use OpenDirectory"})

// make makes a directory and those above it that lack, and brings them to the disk.
func (d *Directory) make(path string) error {
	info, err := os.Stat(path)
	switch {
	case err == nil && !info.IsDir():
		return wrong("make directory", "name a directory, or a path where nothing stands", "%s is no directory", path)
	case err == nil:
		return nil
	case !errors.Is(err, os.ErrNotExist):
		return err
	}
	above := filepath.Dir(path)
	if err := d.make(above); err != nil {
		return err
	}
	if err := d.fs.Mkdir(path); err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	return d.fs.SyncDir(above)
}

// Path returns the directory's path.
func (d *Directory) Path() string { return d.path }

// Steps returns the saved steps, ascending. It leaves out saves that were interrupted.
func (d *Directory) Steps() ([]int64, error) {
	if d.fs == nil {
		return nil, errNotOpen
	}
	return stepsIn(d.path)
}

// Open opens the checkpoint of a step. The error matches [ErrNone] if the step was not saved, and
// [ErrCorrupt] if the checkpoint is damaged, as far as the damage shows without reading all of it
// (see [Checkpoint.Verify]).
func (d *Directory) Open(step int64) (*Checkpoint, error) {
	if d.fs == nil {
		return nil, errNotOpen
	}
	dir := filepath.Join(d.path, stepName(step))
	if info, err := os.Lstat(dir); err == nil && info.Mode()&os.ModeSymlink != 0 {
		return nil, unreadable(dir, files.Regular(dir, info))
	}
	c, err := Open(dir)
	if err == nil {
		if err = ofStep(c.step, step, filepath.Join(dir, manifestFile)); err != nil {
			return nil, errors.Join(err, c.Close())
		}
	}
	if errors.Is(err, os.ErrNotExist) && !errors.Is(err, ErrCorrupt) {
		return nil, none("open one of Directory.Steps", "no step %d in %s", step, d.path)
	}
	if err == nil {
		d.saw(step)
	}
	return c, err
}

// Latest opens the checkpoint of the last step, as tf.train.latest_checkpoint names it. The error
// of an empty directory matches [ErrNone]. Latest returns an error for a damaged checkpoint;
// [Directory.LatestIntact] passes over it.
func (d *Directory) Latest() (*Checkpoint, error) {
	steps, err := d.Steps()
	if err != nil {
		return nil, err
	}
	if len(steps) == 0 {
		return nil, none("save one first", "%s is empty", d.path)
	}
	return d.Open(steps[len(steps)-1])
}

// LatestIntact reads checkpoints, the last first, and opens the first whose checksums hold. passed
// holds the errors of the later checkpoints that it passed over because they are damaged or cannot
// be read: log them. It does not pass over a checkpoint that a later version of this program wrote
// ([*VersionError]), or one that this process may not read; their error is err.
func (d *Directory) LatestIntact(ctx context.Context) (c *Checkpoint, passed []error, err error) {
	steps, err := d.Steps()
	if err != nil {
		return nil, nil, err
	}
	for _, step := range slices.Backward(steps) {
		c, err := d.Open(step)
		if err == nil {
			if err = c.Verify(ctx); err == nil {
				return c, passed, nil
			}
			c.Close()
		}
		if !errors.Is(err, ErrCorrupt) && !errors.Is(err, ErrNone) { // it went meanwhile
			return nil, passed, err
		}
		d.saw(step)
		passed = append(passed, err)
	}
	return nil, passed, none("restore a copy of the directory, or begin anew", "none of the %d in %s is intact", len(steps), d.path)
}

// RemoveAfter removes the checkpoints of all steps after the given step, for a run that goes back
// to that step: a directory only saves steps after the last.
func (d *Directory) RemoveAfter(step int64) error {
	return d.change(func() error {
		steps, err := d.Steps()
		if err != nil {
			return err
		}
		for _, s := range slices.Backward(steps) {
			if s > step {
				if err := d.remove(s); err != nil {
					return err
				}
			}
		}
		d.seen.Store(min(d.seen.Load(), step))
		return nil
	})
}

// change runs what changes the directory, alone, after clearing away what an interrupted change
// left.
func (d *Directory) change(f func() error) (err error) {
	if d.fs == nil {
		return errNotOpen
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	locked, err := lock(d.path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, locked.Close()) }()
	steps, err := d.Steps()
	if err != nil {
		return err
	}
	last := int64(-1)
	if len(steps) > 0 {
		last = steps[len(steps)-1]
	}
	owner, known := readOwner(locked)
	if known && owner.ID != d.self.ID && !d.takeOver && owner.runs(d.self) {
		return d.conflict(owner, true, owner.Step)
	}
	if seen := d.seen.Load(); last > seen && !d.takeOver {
		return d.conflict(owner, false, last)
	}
	defer func() {
		if err == nil {
			d.self.write(locked, d.seen.Load())
		}
	}()
	paths, err := leftovers(d.path)
	if err != nil {
		return doing("list directory", "", err)
	}
	for _, path := range paths {
		if err := d.fs.RemoveAll(path); err != nil {
			return doing("clear away an interrupted save", "", err)
		}
	}
	return f()
}

// remove takes a checkpoint away. It is renamed first, so that it is never there in part.
func (d *Directory) remove(step int64) error {
	old := filepath.Join(d.path, oldPrefix+stepName(step))
	err := d.fs.Rename(filepath.Join(d.path, stepName(step)), old)
	if err == nil {
		err = d.fs.SyncDir(d.path)
	}
	if err == nil {
		err = d.fs.RemoveAll(old)
	}
	if err != nil {
		return doing("remove", fmt.Sprintf("step %d", step), err)
	}
	return nil
}
