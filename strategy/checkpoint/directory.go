package checkpoint

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
)

// Options configure a directory. The zero value keeps every checkpoint.
type Options struct {
	// Keep is the number of checkpoints that a save leaves, the newest; 0 keeps
	// all.
	Keep int
}

// Directory is a directory of checkpoints, one for each saved step. It is safe for
// concurrent use; saves take turns.
type Directory struct {
	path string
	keep int
	fs   filesystem

	mu sync.Mutex // held by what changes the directory
}

// OpenDirectory opens a directory of checkpoints, making it if it is not there. It
// reads nothing yet, and there is nothing to close.
func OpenDirectory(path string, opts Options) (*Directory, error) {
	if opts.Keep < 0 {
		return nil, fmt.Errorf("checkpoint: option Keep: %d checkpoints; 0 keeps all", opts.Keep)
	}
	d := &Directory{path: path, keep: opts.Keep, fs: osFilesystem{}}
	if err := d.make(filepath.Clean(path)); err != nil {
		return nil, fmt.Errorf("checkpoint: %w", err)
	}
	return d, nil
}

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
func (d *Directory) Steps() ([]int64, error) { return stepsIn(d.path) }

// Open opens the checkpoint of a step. Errors match [ErrNone] if there is none and
// [ErrCorrupt] if it is damaged, as far as that shows without reading all of it;
// see [Checkpoint.Verify].
func (d *Directory) Open(step int64) (*Checkpoint, error) {
	c, err := Open(filepath.Join(d.path, stepName(step)))
	if errors.Is(err, os.ErrNotExist) && !errors.Is(err, ErrCorrupt) {
		return nil, fmt.Errorf("%w: no step %d in %s", ErrNone, step, d.path)
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
// passed are the errors of the later ones that it passed over.
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
		if !errors.Is(err, ErrCorrupt) {
			return nil, passed, err
		}
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
		return nil
	})
}

// change runs what changes the directory, alone, after clearing away what an
// interrupted change left.
func (d *Directory) change(f func() error) (err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	release, err := lock(d.path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, release()) }()
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
