package checkpoint

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/tpustrategy/tpustrategy/errkind"
)

// SaveOptions describes a checkpoint to save. The zero value works.
type SaveOptions struct {
	// Metadata is saved in the checkpoint and in the header of its tensor file. It may hold, for
	// example, the position of the input as JSON.
	Metadata map[string]string
	// Metrics are values by which a [Manager] keeps the best checkpoints; see [Retention]. A
	// [Directory] does not take them.
	Metrics map[string]float64
}

// ErrKept matches the error of a save that saved its step but could not remove older checkpoints.
// The next save tries again.
var ErrKept = errkind.New(errkind.RuntimeError, "checkpoint: saved, but older ones stay")

// metadataStep is the entry of the tensor file's header that holds the step.
const metadataStep = "tpustrategy.step"

// Save saves a group of variables as the checkpoint of a step, as tf.train.CheckpointManager.save
// does. The step must come after the last saved step; otherwise the error matches [ErrStep]. If
// another run saves to the directory, the error is an [*OwnerError].
//
// The checkpoint appears when all of it is on the disk, or not at all: after an error, and after
// the end of the process, the directory holds what it held before. Save reads and writes one
// variable after another, and holds about one variable in host memory at a time. Nothing may change
// the variables during a save.
func (d *Directory) Save(ctx context.Context, step int64, g Group, opts SaveOptions) error {
	if len(opts.Metrics) > 0 {
		return wrong("save", "use a Manager, or put them into the metadata", "a Directory keeps no metrics")
	}
	m := &manifest{Format: formatName, Version: formatVersion, Step: step, Metadata: opts.Metadata}
	r, err := newReading(g, m)
	if err != nil {
		return err
	}
	defer r.drain(ctx)
	if step < 0 {
		return wrong("save", "count steps from 0", "step %d", step)
	}
	return d.change(func() error {
		steps, err := d.Steps()
		if err != nil {
			return err
		}
		if len(steps) > 0 && steps[len(steps)-1] >= step {
			return &errkind.Fault{Match: ErrStep, Reason: fmt.Sprintf("step %d, %s has step %d", step, d.path, steps[len(steps)-1]),
				Hint: "save later steps, or call RemoveAfter"}
		}
		temp := filepath.Join(d.path, tempPrefix+stepName(step))
		if err := d.commit(ctx, temp, m, r); err != nil {
			// The next save clears away what this cannot.
			_ = d.fs.RemoveAll(temp)
			return err
		}
		d.saw(step)
		steps = append(steps, step)
		for d.keep > 0 && len(steps) > d.keep {
			if err := d.remove(steps[0]); err != nil {
				return &errkind.Fault{Match: ErrKept, Err: err, Hint: "the next save tries again"}
			}
			steps = steps[1:]
		}
		return nil
	})
}

// commit writes a checkpoint under a temporary name and puts it in place.
func (d *Directory) commit(ctx context.Context, temp string, m *manifest, r *reading) error {
	fail := func(err error) error { return doing("save", fmt.Sprintf("step %d", m.Step), err) }
	if err := d.fs.Mkdir(temp); err != nil {
		return fail(err)
	}
	err := d.write(filepath.Join(temp, variablesFile), func(w io.Writer) error {
		return writeVariables(ctx, w, m, r)
	})
	if err != nil {
		return fail(err)
	}
	data, err := m.encode()
	if err != nil {
		return fail(err)
	}
	err = d.write(filepath.Join(temp, manifestFile), func(w io.Writer) error {
		_, err := w.Write(data)
		return err
	})
	if err == nil {
		err = d.fs.SyncDir(temp)
	}
	if err == nil {
		err = ctx.Err()
	}
	if err != nil {
		return fail(err)
	}
	final := filepath.Join(d.path, stepName(m.Step))
	// An empty folder of this name is no checkpoint; what is in another is not ours.
	if inside, err := os.ReadDir(final); err == nil && len(inside) == 0 {
		if err := d.fs.RemoveAll(final); err != nil {
			return fail(err)
		}
	}
	if err := d.fs.Rename(temp, final); err != nil {
		return fail(err)
	}
	if err := d.fs.SyncDir(d.path); err != nil {
		// It may not last, so it is not there.
		return fail(errors.Join(err, d.fs.Rename(final, temp)))
	}
	return nil
}

// write makes a file that is on the disk when write returns.
func (d *Directory) write(path string, content func(io.Writer) error) error {
	f, err := d.fs.Create(path)
	if err != nil {
		return err
	}
	buffered := bufio.NewWriterSize(f, 1<<20)
	err = content(buffered)
	if err == nil {
		err = buffered.Flush()
	}
	if err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

// pieceBytes is what is written between two looks at the context.
const pieceBytes = 4 << 20

// summing is a writer that counts and sums what goes through it.
type summing struct {
	w     io.Writer
	bytes int64
	sum   checksum
}

func (s *summing) Write(p []byte) (int, error) {
	n, err := s.w.Write(p)
	s.bytes += int64(n)
	s.sum = s.sum.plus(p[:n])
	return n, err
}
