package prochost

import (
	"context"
	"fmt"
	"slices"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/pjrt"
)

// Execute launches the program with the host's arguments. It blocks until all hosts of the program
// have launched it and the results are available, or until ctx ends.
func (e *executable) Execute(ctx context.Context, args, results [][]*pjrt.Buffer, opts pjrt.ExecuteOptions) error {
	if ctx.Err() != nil {
		return fail("execute", context.Cause(ctx))
	}
	types, err := e.check(args, results, opts)
	if err != nil {
		return err
	}
	body, err := e.read(ctx, args)
	if err != nil {
		return err
	}
	defer e.scratch.Put(body)
	_, out, err := e.runtime.link.call(ctx, request{Op: opExecute,
		Launch: &launchHeader{Executable: e.id, Arguments: types, Donate: opts.Donate, LaunchID: opts.LaunchID}}, *body)
	if err != nil {
		return err
	}
	parts, err := split(out, len(e.devices), e.outputs)
	if err != nil {
		return err
	}
	return e.fill(args, results, opts.Donate, parts)
}

// wrong returns an error for an invalid argument or result buffer. Nothing was launched.
func wrong(result bool, device, index int, format string, args ...any) error {
	return &pjrt.ArgumentError{IsResult: result, Device: device, Index: index, Reason: fmt.Sprintf(format, args...)}
}

// check validates the buffers and options of a launch like a PJRT client, and returns the argument
// types of one device.
func (e *executable) check(args, results [][]*pjrt.Buffer, opts pjrt.ExecuteOptions) (types []tensor, err error) {
	n := len(e.devices)
	if len(args) != n || len(results) != n {
		return nil, fault("execute", errkind.ValueError, "%d and %d lists for the %d devices of this host", len(args),
			len(results), n)
	}
	width := len(args[0])
	if opts.Donate != nil && len(opts.Donate) != width {
		return nil, wrong(false, -1, -1, "%d arguments and %d entries of Donate", width, len(opts.Donate))
	}
	used := map[*pjrt.Buffer]bool{} // maps each argument to whether it is donated
	for d, row := range args {
		if len(row) != width {
			return nil, wrong(false, d, -1, "%d buffers, device 0 has %d", len(row), width)
		}
		for i, b := range row {
			donated := opts.Donate != nil && opts.Donate[i]
			if b == nil {
				return nil, wrong(false, d, i, "it is nil")
			}
			if b.State() != pjrt.Live {
				return nil, &pjrt.ArgumentError{Device: d, Index: i, Reason: b.String(), Err: stateError(b)}
			}
			if b.Device() != e.devices[d] {
				return nil, wrong(false, d, i, "%v, the program takes it on device %d", b, e.devices[d].ID())
			}
			if t := (tensor{b.DType(), b.Dims()}); d == 0 {
				types = append(types, t)
			} else if t.Type != types[i].Type || !slices.Equal(t.Dims, types[i].Dims) {
				return nil, wrong(false, d, i, "%v, and that of device %d is %v", b, e.devices[0].ID(), args[0][i])
			}
			if before, twice := used[b]; twice && (before || donated) {
				return nil, &pjrt.ArgumentError{Device: d, Index: i, Reason: "the buffer is donated and an argument twice",
					Err: pjrt.ErrBusy}
			}
			used[b] = donated
		}
	}
	filled := map[*pjrt.Buffer]bool{}
	for d, row := range results {
		if len(row) != len(e.outputs) {
			return nil, wrong(true, d, -1, "%d places for %d results", len(row), len(e.outputs))
		}
		for j, b := range row {
			switch {
			case b == nil:
			case filled[b]:
				return nil, wrong(true, d, j, "the buffer is that of another result too")
			case b.State() == pjrt.Live && !used[b]:
				return nil, &pjrt.ArgumentError{IsResult: true, Device: d, Index: j, Reason: fmt.Sprintf("%v is live", b),
					Err: pjrt.ErrBusy}
			}
			filled[b] = b != nil
		}
	}
	return types, nil
}

// stateError returns an error for a buffer that cannot be read.
func stateError(b *pjrt.Buffer) error {
	if b.State() == pjrt.Donated {
		return pjrt.ErrDonated
	}
	return pjrt.ErrClosed
}

// read copies the arguments to host memory, device by device.
func (e *executable) read(ctx context.Context, args [][]*pjrt.Buffer) (*[]byte, error) {
	size := 0
	for _, row := range args {
		for _, b := range row {
			size += b.Bytes()
		}
	}
	if limit := e.runtime.link.maxBytes; int64(size) > limit {
		return nil, fault("execute", errkind.ResourceExhaustedError,
			"the arguments of the host take %d bytes, the limit is %d", size, limit)
	}
	body, _ := e.scratch.Get().(*[]byte)
	if body == nil {
		body = new([]byte)
	}
	*body = slices.Grow((*body)[:0], size)[:size]
	rest := *body
	for _, row := range args {
		for _, b := range row {
			n := b.Bytes()
			if err := b.ToHost(ctx, rest[:n:n]); err != nil {
				return nil, err
			}
			rest = rest[n:]
		}
	}
	return body, nil
}

// fill closes the donated arguments and stores the results in result buffers.
func (e *executable) fill(args, results [][]*pjrt.Buffer, donate []bool, parts [][][]byte) error {
	for _, row := range args {
		for i, b := range row {
			if donate == nil || !donate[i] {
				continue
			}
			if err := b.Close(); err != nil {
				return err
			}
		}
	}
	rt := e.runtime.base.Runtime()
	ctx := context.Background() // the arguments are closed, so the results must not be lost
	for d, row := range results {
		for j, t := range e.outputs {
			var err error
			if row[j] == nil {
				row[j], err = rt.BufferFromHost(ctx, parts[d][j], t.Type, t.Dims, e.devices[d])
			} else {
				err = rt.RefillFromHost(ctx, row[j], parts[d][j], t.Type, t.Dims, e.devices[d])
			}
			if err != nil {
				return err
			}
		}
	}
	return nil
}
