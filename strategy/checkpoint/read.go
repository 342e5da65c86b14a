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

// Verify reads the whole checkpoint and verifies its checksums. For damage it returns a
// [*CorruptError], which names the variable if a variable is damaged.
func (c *Checkpoint) Verify(ctx context.Context) error {
	if c.objects == nil {
		return errNotOpened
	}
	all := make([]*source, len(c.variables))
	for i := range c.variables {
		all[i] = c.parts(&c.variables[i])
	}
	return c.verify(ctx, all, 0, 1)
}

// VerifyShare verifies share number share of of shares, counted from 0, so that several processes
// can verify a checkpoint together. Every byte is in exactly one share.
func (c *Checkpoint) VerifyShare(ctx context.Context, share, of int) error {
	if of < 1 || share < 0 || share >= of {
		return wrong("verify", "count from 0", "share %d of %d", share, of)
	}
	if c.sharded == nil || of == 1 {
		if share > 0 {
			return nil // the first share is the whole file
		}
		return c.Verify(ctx)
	}
	var mine []*source
	n := 0
	for i := range c.variables {
		some := c.variables[i]
		some.regions = nil
		for _, g := range c.variables[i].regions {
			if n%of == share {
				some.regions = append(some.regions, g)
			}
			n++
		}
		if len(some.regions) > 0 {
			mine = append(mine, c.parts(&some))
		}
	}
	return c.verify(ctx, mine, share, of)
}

// readers returns the number of parts that are read concurrently while others are copied to the
// devices.
func readers() int { return min(2, runtime.GOMAXPROCS(0)) }

// verify verifies a share of the files' headers, and the variables. It returns the error of the
// first damaged one.
func (c *Checkpoint) verify(ctx context.Context, all []*source, share, of int) error {
	if err := c.verifyHeaders(ctx, share, of); err != nil {
		return err
	}
	errs := make([]error, len(all))
	var failed atomic.Bool
	var group errgroup.Group
	group.SetLimit(readers())
	for i, p := range all { // all variables before a failed one have started
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

// verifyHeaders verifies the headers of one share of the files.
func (c *Checkpoint) verifyHeaders(ctx context.Context, share, of int) error {
	group, within := errgroup.WithContext(ctx)
	group.SetLimit(readers())
	for i := share; i < len(c.objects); i += of {
		group.Go(func() error { return c.objects[i].verifyHeader(within) })
	}
	return group.Wait()
}

// verify reads the variable and verifies its checksums, if it has any.
func (p *source) verify(ctx context.Context) error {
	if p.variable.whole != nil {
		return p.of.compareWhole(ctx, p.variable)
	}
	memory := aheadMemory.Get().(*[]byte)
	defer aheadMemory.Put(memory)
	for i := range p.variable.regions {
		g := &p.variable.regions[i]
		if g.sums == nil {
			continue
		}
		for at := int64(0); at < g.bytes; at += aheadBytes {
			if err := ctx.Err(); err != nil {
				return faultOf(p.variable.Path, "not read", "", err)
			}
			if err := p.of.blocks(ctx, p.variable, g, (*memory)[:min(aheadBytes, g.bytes-at)], at); err != nil {
				return err
			}
		}
	}
	return nil
}

// errNotOpened reports the use of a zero Checkpoint.
var errNotOpened = error(&errkind.Fault{Match: ErrClosed, Reason: "the checkpoint was not opened", Hint: "use Manager.Open"})

// Tensor reads one saved value and verifies its checksum, like tf.train.load_variable. The caller
// owns the tensor. For a path that was not saved the error matches [ErrNotFound].
func (c *Checkpoint) Tensor(ctx context.Context, path string) (*tensors.Tensor, error) {
	if c.objects == nil {
		return nil, errNotOpened
	}
	for i := range c.variables {
		if v := &c.variables[i]; v.Path == path {
			return c.tensor(ctx, v)
		}
	}
	return nil, none("give the path of one of Checkpoint.Variables", "no variable %q in %s", path, c.path)
}
