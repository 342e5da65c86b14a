package checkpoint

import (
	"context"
	"errors"
	"io"
	"os"
	"sync"
	"sync/atomic"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/storage"
)

// object is what regions of a checkpoint are read from: a file, or an object of a store that is
// opened when it is first read.
type object struct {
	name string // for messages
	open func(ctx context.Context) (storage.Object, error)
	size int64
	file atomic.Bool // it is a file of this machine; known once it is open

	mu     sync.Mutex
	opened storage.Object
	closed bool
}

// get opens the object, once.
func (o *object) get(ctx context.Context) (storage.Object, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.closed {
		return nil, os.ErrClosed
	}
	if o.opened != nil {
		return o.opened, nil
	}
	opened, err := o.open(ctx)
	if err != nil {
		return nil, err
	}
	if opened.Size() != o.size {
		return nil, errors.Join(errLength(opened.Size(), o.size), opened.Close())
	}
	o.has(opened)
	return opened, nil
}

// has notes what the object was opened as.
func (o *object) has(opened storage.Object) {
	o.opened = opened
	_, isFile := opened.(interface{ Fd() uintptr })
	o.file.Store(isFile)
}

func errLength(got, want int64) error {
	return malformed("it has %d bytes, %d were written", got, want)
}

// read fills p with bytes of a variable.
func (o *object) read(ctx context.Context, v *variable, p []byte, at int64) error {
	from, err := o.get(ctx)
	if err == nil {
		err = from.ReadAt(ctx, p, at)
	}
	switch {
	case err == nil:
		return nil
	case errors.Is(err, os.ErrClosed):
		return &errkind.Fault{Match: ErrClosed, Reason: o.name, Hint: "open it again"}
	case ctx.Err() != nil:
		return faultOf(v.Path, "not read", "", ctx.Err())
	case errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, io.EOF):
		return &CorruptError{File: o.name, Variable: v.Path, Reason: "it was cut short"}
	}
	if corrupt := (*CorruptError)(nil); errors.As(unreadable(o.name, err), &corrupt) {
		corrupt.Variable = v.Path
		return corrupt
	}
	return faultOf(v.Path, "not read", "", err)
}

func (o *object) close() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.closed = true
	if o.opened == nil {
		return nil
	}
	err := o.opened.Close()
	if errors.Is(err, os.ErrClosed) {
		return nil
	}
	return err
}

// localFile is an open file as an object.
type localFile struct {
	*os.File
	size int64
}

func (f localFile) Size() int64 { return f.size }

func (f localFile) ReadAt(ctx context.Context, p []byte, at int64) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	_, err := f.File.ReadAt(p, at)
	return err
}
