package strategy

import (
	"context"
	"errors"
	"fmt"

	"github.com/gomlx/compute/shapes"

	"github.com/tpustrategy/tpustrategy/pjrt"
	"github.com/tpustrategy/tpustrategy/strategy/internal/fault"
)

// valueCopies copies first values from the devices that made them to the process's others, while
// the next values are made. Where a runtime takes the host's memory for the way of a copy, that is
// less than the largest value needs: no more than its bytes, or one part, are under way at a time.
type valueCopies struct {
	strategy *TPUStrategy
	to       func(ctx context.Context, b *pjrt.Buffer, d *pjrt.Device) (*pjrt.Buffer, error) // nil for the plugin's
	largest  int                                                                             // bytes of the largest value so far
	underWay []*pjrt.Buffer                                                                  // oldest first
	bytes    int                                                                             // of what is under way
	values   []copiedValue
}

// copiedValue is a variable and its buffers, which it has when they are ready.
type copiedValue struct {
	variable *Variable
	buffers  []*pjrt.Buffer
}

// start starts the copies of a variable's value, whose buffers it takes.
func (c *valueCopies) start(ctx context.Context, v *Variable, buffers []*pjrt.Buffer, from makers) error {
	c.values = append(c.values, copiedValue{v, buffers})
	s := c.strategy
	c.largest = max(c.largest, int(shapes.Make(v.dtype, v.shape...).ByteSize()))
	for d, device := range s.devices {
		if !s.processes.local[d] || buffers[d] != nil {
			continue
		}
		source := buffers[from.source(d)]
		for len(c.underWay) > 0 && c.bytes+source.Bytes() > c.largest {
			if err := c.wait(ctx); err != nil {
				return err
			}
		}
		b, err := c.copy(ctx, source, device)
		if err != nil {
			return fault.Of(fmt.Sprintf("copying to replica %d, logical device %d", d/s.logicalDevices, d%s.logicalDevices), err, "")
		}
		buffers[d] = b
		c.underWay, c.bytes = append(c.underWay, b), c.bytes+b.Bytes()
	}
	return nil
}

// copy starts a copy to a device. Of a plugin that has none, the copy goes through the host.
func (c *valueCopies) copy(ctx context.Context, b *pjrt.Buffer, d *pjrt.Device) (*pjrt.Buffer, error) {
	to := c.to
	if to == nil {
		to = func(ctx context.Context, b *pjrt.Buffer, d *pjrt.Device) (*pjrt.Buffer, error) {
			return b.CopyToDevice(ctx, d)
		}
	}
	made, err := to(ctx, b, d)
	if !errors.Is(err, errors.ErrUnsupported) {
		return made, err
	}
	data := make([]byte, b.Bytes())
	if err := b.ToHost(ctx, data); err != nil {
		return nil, err
	}
	return c.strategy.sys.Runtime().BufferFromHost(ctx, data, b.DType(), b.Dims(), d)
}

// wait waits for the oldest copy.
func (c *valueCopies) wait(ctx context.Context) error {
	b := c.underWay[0]
	if err := ready(ctx, c.underWay[:1]); err != nil {
		return err
	}
	c.underWay, c.bytes = c.underWay[1:], c.bytes-b.Bytes()
	return nil
}

// finish gives the variables their values when those are there. A variable whose value is not
// whole, after an error, gets none: its store still knows how to make it.
func (c *valueCopies) finish(ctx context.Context) error {
	var errs []error
	for _, x := range c.values {
		if !c.whole(x.buffers) { // start has said why
			errs = append(errs, closeAll(x.buffers))
		} else if err := ready(ctx, x.buffers); err != nil {
			errs = append(errs, fault.Of(fmt.Sprintf("variable %q", x.variable.path), err, ""), closeAll(x.buffers))
		} else {
			errs = append(errs, x.variable.take(x.buffers))
		}
	}
	c.values, c.underWay, c.bytes = nil, nil, 0
	return errors.Join(errs...)
}

// whole says whether all devices of the process have a buffer.
func (c *valueCopies) whole(buffers []*pjrt.Buffer) bool {
	for d, b := range buffers {
		if b == nil && c.strategy.processes.local[d] {
			return false
		}
	}
	return true
}
