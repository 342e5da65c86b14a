package checkpoint

import (
	"cmp"
	"context"
	"runtime"
	"sync/atomic"

	"github.com/gomlx/gomlx/core/tensors"
	"golang.org/x/sync/errgroup"

	"github.com/tpustrategy/tpustrategy/errkind"
)

// Verify reads the complete checkpoint and verifies its checksums. If it detects damage, it returns
// a [*CorruptError] that names the damaged variable, if any.
func (c *Checkpoint) Verify(ctx context.Context) error {
	if c.objects == nil {
		return errNotOpened
	}
	readers := make([]*variableReader, len(c.variables))
	for i := range c.variables {
		readers[i] = c.newReader(&c.variables[i])
	}
	return c.verifyVariables(ctx, readers, 0, 1)
}

// VerifyShard verifies one of several parts of a checkpoint, so that several processes can verify a
// checkpoint together. count is the number of parts and index is the number of this part, starting
// at 0. Every byte of the checkpoint belongs to exactly one part.
func (c *Checkpoint) VerifyShard(ctx context.Context, index, count int) error {
	if count < 1 || index < 0 || index >= count {
		return argumentError("verify", "count from 0", "part %d of %d", index, count)
	}
	if c.sharded == nil || count == 1 {
		if index > 0 {
			return nil // the first part is the complete file
		}
		return c.Verify(ctx)
	}
	var readers []*variableReader
	n := 0
	for i := range c.variables {
		partial := c.variables[i]
		partial.regions = nil
		for _, g := range c.variables[i].regions {
			if n%count == index {
				partial.regions = append(partial.regions, g)
			}
			n++
		}
		if len(partial.regions) > 0 {
			readers = append(readers, c.newReader(&partial))
		}
	}
	return c.verifyVariables(ctx, readers, index, count)
}

// maxReaders returns the maximum number of concurrent reads from the store.
func maxReaders() int { return min(2, runtime.GOMAXPROCS(0)) }

// verifyVariables verifies the given variables. It also verifies the file headers that
// verifyHeaders selects by index and count. It returns the error of the first damaged variable.
func (c *Checkpoint) verifyVariables(ctx context.Context, readers []*variableReader, index, count int) error {
	if err := c.verifyHeaders(ctx, index, count); err != nil {
		return err
	}
	errs := make([]error, len(readers))
	var failed atomic.Bool
	var group errgroup.Group
	group.SetLimit(maxReaders())
	for i, p := range readers { // all variables before a failed one have started
		if failed.Load() {
			break
		}
		group.Go(func() error {
			errs[i] = p.verify(ctx)
			if errs[i] != nil {
				failed.Store(true)
			}
			return nil
		})
	}
	_ = group.Wait()
	return cmp.Or(errs...)
}

// verifyHeaders divides the files into count parts and verifies the file headers of one part. A
// file belongs to the part if its number modulo count is index.
func (c *Checkpoint) verifyHeaders(ctx context.Context, index, count int) error {
	group, within := errgroup.WithContext(ctx)
	group.SetLimit(maxReaders())
	for i := index; i < len(c.objects); i += count {
		group.Go(func() error { return c.objects[i].verifyHeader(within) })
	}
	return group.Wait()
}

// verify reads the variable and verifies its checksums. Variables of files without checksums are
// only read.
func (r *variableReader) verify(ctx context.Context) error {
	if r.variable.wholeChecksum != nil {
		return r.checkpoint.verifyWhole(ctx, r.variable)
	}
	buf := readBuffers.Get().(*[]byte)
	defer readBuffers.Put(buf)
	for i := range r.variable.regions {
		g := &r.variable.regions[i]
		if g.sums == nil {
			continue
		}
		for offset := int64(0); offset < g.bytes; offset += maxReadBytes {
			if err := ctx.Err(); err != nil {
				return variableError(r.variable.Path, "not read", "", err)
			}
			if err := r.checkpoint.readBlocks(ctx, r.variable, g, (*buf)[:min(maxReadBytes, g.bytes-offset)],
				offset); err != nil {
				return err
			}
		}
	}
	return nil
}

// errNotOpened is the error of the methods of a zero [Checkpoint].
var errNotOpened = error(&errkind.Fault{Op: "checkpoint", Match: ErrClosed, Reason: "the checkpoint is a zero value",
	Hint: "open it with Manager.Open"})

// Tensor reads one saved value and verifies its checksum, like tf.train.load_variable. The caller
// owns the tensor. For a path that was not saved the error matches [ErrNotFound].
func (c *Checkpoint) Tensor(ctx context.Context, path string) (*tensors.Tensor, error) {
	if c.objects == nil {
		return nil, errNotOpened
	}
	for i := range c.variables {
		if v := &c.variables[i]; v.Path == path {
			return c.readTensor(ctx, v)
		}
	}
	return nil, notFoundError("give the path of one of Checkpoint.Variables", "no variable %q in %s", path, c.path)
}
