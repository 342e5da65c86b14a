package checkpoint

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"sync/atomic"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/storage"
)

// object is a file of a checkpoint: a local file, or an object of a store. It is opened at the
// first read.
type object struct {
	name string // for messages
	open func(ctx context.Context) (storage.Object, error)
	size int64
	// headerSize is the size of the header in bytes, or 0 if its checksum headerSum is not known.
	headerSize int64
	headerSum  checksum
	isFile     atomic.Bool // a local file; set when it is opened

	mu     sync.Mutex
	opened storage.Object
	closed bool
}

// openObject opens the object and verifies the checksum of its header. It returns the same open
// object in later calls.
func (o *object) openObject(ctx context.Context) (storage.Object, error) {
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
		return nil, errors.Join(lengthError(opened.Size(), o.size), opened.Close())
	}
	if err := o.checkHeader(ctx, opened); err != nil {
		return nil, errors.Join(err, opened.Close())
	}
	o.setOpened(opened)
	return opened, nil
}

// checkHeader returns a CorruptError if the checksum of the header does not match.
func (o *object) checkHeader(ctx context.Context, opened storage.Object) error {
	buf := readBuffers.Get().(*[]byte)
	defer readBuffers.Put(buf)
	var sum checksum
	for range 2 { // a network transfer may corrupt bytes
		sum = 0
		for at := int64(0); at < o.headerSize; at += maxReadBytes {
			p := (*buf)[:min(maxReadBytes, o.headerSize-at)]
			if err := opened.ReadAt(ctx, p, at); err != nil {
				return err
			}
			sum = sum.update(p)
		}
		if sum == o.headerSum {
			return nil
		}
	}
	return &CorruptError{File: o.name, Reason: fmt.Sprintf("the checksum of its header is %s, %s was written", sum,
		o.headerSum)}
}

// verifyHeader verifies the checksum of the header, unless the checksum was already verified when
// the object was opened.
func (o *object) verifyHeader(ctx context.Context) error {
	if o.headerSize == 0 {
		return nil
	}
	_, err := o.openObject(ctx)
	return o.convertError(ctx, "", err)
}

// setOpened stores the open file of the object, and records whether it is a local file.
func (o *object) setOpened(opened storage.Object) {
	o.opened = opened
	_, isFile := opened.(interface{ Fd() uintptr })
	o.isFile.Store(isFile)
}

func lengthError(got, want int64) error {
	return formatError("it has %d bytes, %d were written", got, want)
}

// read fills p with bytes of an object, starting at an offset. The bytes belong to the variable v.
func (o *object) read(ctx context.Context, v *variable, p []byte, offset int64) error {
	opened, err := o.openObject(ctx)
	if err == nil {
		err = opened.ReadAt(ctx, p, offset)
	}
	return o.convertError(ctx, v.Path, err)
}

// convertError converts an error of package storage to an error of this package. path is the path
// of the variable that was read, or "" for the header of the file.
func (o *object) convertError(ctx context.Context, path string, err error) error {
	if err == nil || errors.As(err, new(*CorruptError)) {
		return err
	}
	notRead := func(err error) error {
		if path == "" {
			return wrapError("read the header", o.name, err)
		}
		return variableError(path, "not read", "", err)
	}
	switch {
	case errors.Is(err, os.ErrClosed):
		return &errkind.Fault{Op: "checkpoint", Match: ErrClosed, Reason: "the checkpoint with the file " + o.name +
			" is closed", Hint: "open it again with Manager.Open"}
	case ctx.Err() != nil:
		return notRead(ctx.Err())
	case errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, io.EOF):
		return &CorruptError{File: o.name, Variable: path, Reason: "it is truncated"}
	}
	if corrupt := (*CorruptError)(nil); errors.As(readError(o.name, err), &corrupt) {
		corrupt.Variable = path
		return corrupt
	}
	return notRead(err)
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

// localFile implements [storage.Object] for an open file.
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
