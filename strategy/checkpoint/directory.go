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

	"github.com/tpustrategy/tpustrategy/internal/files"
)

// Options configure a directory. The zero value keeps every checkpoint.
type Options struct {
	// Keep is the number of checkpoints that a save leaves, the newest; 0 keeps
	// all.
	Keep int
	// TakeOver saves also where another run saves, or did since this one looked: see
	// [OwnerError]. The other run's next save then fails with one.
	TakeOver bool
}

// Directory is a directory of checkpoints, one for each saved step. It is safe for
// concurrent use; saves take turns.
type Directory struct {
	path     string
	keep     int
	takeOver bool
	fs       filesystem
	self     ownerRecord
	// seen is the last step that this run knows of: one that was there when it opened
	// the directory, that it opened, or that it saved. -1 is none.
	seen atomic.Int64

	mu sync.Mutex // held by what changes the directory
}

// OpenDirectory opens a directory of checkpoints, making it if it is not there. It
// reads no checkpoint yet, and there is nothing to close. A path that is a URL, such as
// "gs://bucket/run", is a [*PathError].
//
// A directory is for one run at a time. The run is known by a record in the lock file:
// a save is refused with an [*OwnerError] while the process that saved last runs
// elsewhere on this machine, and where another run has saved a checkpoint since this
// Directory was opened that it has not opened itself.
func OpenDirectory(path string, opts Options) (*Directory, error) {
	if opts.Keep < 0 {
		return nil, fmt.Errorf("checkpoint: option Keep: %d checkpoints; 0 keeps all", opts.Keep)
	}
	if err := files.Local(path); err != nil {
		return nil, fmt.Errorf("checkpoint: %w", err)
	}
	d := &Directory{path: path, keep: opts.Keep, takeOver: opts.TakeOver, fs: osFilesystem{}, self: newOwner()}
	if err := d.make(filepath.Clean(path)); err != nil {
		return nil, fmt.Errorf("checkpoint: %w", err)
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
var errNotOpen = fmt.Errorf("%w: the directory was not opened; use OpenDirectory", ErrClosed)

// make makes a directory and those above it that lack, and brings them to the
// disk.
func (d *Directory) make(path string) error {
	info, err := os.Stat(path)
	switch {
	case err == nil && !info.IsDir():
		return fmt.Errorf("%s is no directory", path)
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

// Steps lists the saved steps, ascending. Saves that were interrupted are not
// among them.
func (d *Directory) Steps() ([]int64, error) {
	if d.fs == nil {
		return nil, errNotOpen
	}
	return stepsIn(d.path)
}

// Open opens the checkpoint of a step. Errors match [ErrNone] if there is none and
// [ErrCorrupt] if it is damaged, as far as that shows without reading all of it;
// see [Checkpoint.Verify].
func (d *Directory) Open(step int64) (*Checkpoint, error) {
	if d.fs == nil {
		return nil, errNotOpen
	}
	c, err := Open(filepath.Join(d.path, stepName(step)))
	if errors.Is(err, os.ErrNotExist) && !errors.Is(err, ErrCorrupt) {
		return nil, fmt.Errorf("%w: no step %d in %s", ErrNone, step, d.path)
	}
	if err == nil {
		d.saw(step)
	}
	return c, err
}

// Latest opens the checkpoint of the last step. An empty directory is an error that
// matches [ErrNone]. A damaged checkpoint is not passed over: that is for
// [Directory.LatestIntact].
func (d *Directory) Latest() (*Checkpoint, error) {
	steps, err := d.Steps()
	if err != nil {
		return nil, err
	}
	if len(steps) == 0 {
		return nil, fmt.Errorf("%w: %s is empty", ErrNone, d.path)
	}
	return d.Open(steps[len(steps)-1])
}

// LatestIntact opens the last checkpoint whose checksums hold, reading all of it.
// passed are the errors of the later ones that it passed over, since they are damaged or
// cannot be read: tell somebody. A checkpoint that a later version of this program wrote
// is not passed over ([*VersionError]), nor is one that this process may not read.
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
	return nil, passed, fmt.Errorf("%w: none of the %d in %s is intact", ErrNone, len(steps), d.path)
}

// RemoveAfter removes the checkpoints of all steps after the given one, for a run
// that goes back to it: a save takes later steps only.
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

// change runs what changes the directory, alone, after clearing away what an
// interrupted change left.
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
		return fmt.Errorf("checkpoint: %w", err)
	}
	for _, path := range paths {
		if err := d.fs.RemoveAll(path); err != nil {
			return fmt.Errorf("checkpoint: clearing away an interrupted save: %w", err)
		}
	}
	return f()
}

// remove takes a checkpoint away. It is renamed first, so that it is never there in
// part.
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
		return fmt.Errorf("checkpoint: removing step %d: %w", step, err)
	}
	return nil
}
