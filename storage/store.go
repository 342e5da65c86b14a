package storage

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"
	"time"

	"github.com/tpustrategy/tpustrategy/errkind"
)

// Store stores named objects. Its methods are safe for concurrent use. Errors contain the name of
// the object. The error of an operation whose context was canceled matches the context's error.
type Store interface {
	// Put writes an object atomically: completely or not at all. It replaces an object of the same
	// name unless opts.IfAbsent is set. write writes the content of the object. If the store
	// retries, it calls write again, and write must write the same content from the beginning. If
	// write returns an error, Put returns it and stores nothing.
	//
	// When Put returns without an error, the object is visible to every reader and survives a power
	// loss, unless opts.Volatile is set.
	Put(ctx context.Context, name string, opts PutOptions, write func(w io.Writer) error) error
	// Open opens an object for reading. If there is no such object, the error matches
	// [ErrNotExist].
	Open(ctx context.Context, name string) (Object, error)
	// List returns the objects whose names begin with prefix, sorted by name. The prefix may end
	// within an element of a name. A recent Put of another process may be missing from the list.
	List(ctx context.Context, prefix string) ([]Info, error)
	// Remove removes an object. It is not an error if there is no such object.
	Remove(ctx context.Context, name string) error
	// String returns the path or URL of the store, for messages.
	String() string
	// Close releases the resources of the store. It does not remove objects.
	Close() error
}

// Object is an open object. It is safe for concurrent use.
type Object interface {
	// Size returns the length of the object in bytes.
	Size() int64
	// ReadAt fills p with the bytes that begin at offset. If the object ends before p is full, the
	// error matches io.ErrUnexpectedEOF.
	ReadAt(ctx context.Context, p []byte, offset int64) error
	Close() error
}

// PutOptions configures [Store.Put]. The zero value replaces existing objects.
type PutOptions struct {
	// IfAbsent makes Put fail with an error that matches [ErrExists] if an object of the same name
	// exists. If several writers put the object at the same time, exactly one succeeds.
	IfAbsent bool
	// Size is the length of the object in bytes, or 0 if it is unknown. It is a hint that can make
	// Put faster.
	Size int64
	// Volatile is for objects that are not needed after a power loss, such as heartbeats: they need
	// not be synced to disk. If there is no disk space for a second file, the existing object is
	// overwritten in place, and a reader may see partial content.
	Volatile bool
}

// Info describes an object of a listing.
type Info struct {
	Name string
	Size int64
	// Modified is the time of the Put, by the store's clock.
	Modified time.Time
}

// Sweeper is implemented by stores in which a killed process can leave temporary files and empty
// folders.
type Sweeper interface {
	// Sweep removes temporary files and empty folders whose names begin with prefix. The name of a
	// temporary file begins with the folder of its object. The name of a folder ends with a slash.
	// Sweep keeps files and folders for which live returns true, such as the files of a running
	// Put.
	Sweep(ctx context.Context, prefix string, live func(name string) bool) error
}

var (
	// ErrExists matches the error of a Put with IfAbsent if the object already exists.
	ErrExists = errkind.New(errkind.FailedPreconditionError, "storage: the object exists already")
	// ErrNotExist matches the error for an object that does not exist. It also matches
	// fs.ErrNotExist.
	ErrNotExist error = notExist{}
)

type notExist struct{}

func (notExist) Error() string        { return "storage: no such object" }
func (notExist) Kind() errkind.Kind   { return errkind.NotFoundError }
func (notExist) Is(target error) bool { return target == fs.ErrNotExist }

// WrapError adds the operation, the object's name and the store to an error: "storage: put name in
// store: cause". It is for packages that implement stores. The result matches the same errors as
// cause. If cause is nil, WrapError returns nil.
func WrapError(op, name string, store Store, cause error) error {
	if cause == nil {
		return nil
	}
	subject := store.String()
	if name != "" {
		subject = fmt.Sprintf("%s in %s", name, store)
	}
	f := &errkind.Fault{Op: "storage: " + op, Subject: subject, Err: cause}
	if errkind.KindOf(cause) == errkind.Unknown {
		f.Class = errkind.RuntimeError
	}
	return f
}

// CheckName returns a ValueError unless name is a valid object name. A name has at most 900 bytes
// and consists of elements separated by slashes. An element is not empty, does not begin with a
// dot, and has at most 200 bytes. Backslashes, control characters and invalid UTF-8 are not
// allowed.
func CheckName(name string) error {
	wrong := func(reason string) error {
		return &errkind.Fault{Op: "storage: name", Subject: fmt.Sprintf("%q", name), Reason: reason,
			Class: errkind.ValueError,
			Hint:  `give a name such as "status/host-0003.json"`}
	}
	if name == "" || len(name) > 900 {
		return wrong("it is empty, or longer than 900 bytes")
	}
	for element := range strings.SplitSeq(name, "/") {
		if element == "" || element[0] == '.' || len(element) > 200 {
			return wrong("an element is empty, begins with a dot, or is longer than 200 bytes")
		}
	}
	if strings.ContainsFunc(name, func(r rune) bool { return r < ' ' || r == '\\' || r == 0x7f || r == 0xfffd }) {
		return wrong("it has a backslash, a control character, or is no UTF-8")
	}
	return nil
}

// PutBytes puts data as the content of an object. It sets opts.Size.
func PutBytes(ctx context.Context, s Store, name string, data []byte, opts PutOptions) error {
	opts.Size = int64(len(data))
	return s.Put(ctx, name, opts, func(w io.Writer) error {
		_, err := w.Write(data)
		return err
	})
}

// ReaderAt returns an io.ReaderAt that reads an object. Reads fail after ctx is canceled.
func ReaderAt(ctx context.Context, o Object) io.ReaderAt { return readerAt{ctx, o} }

type readerAt struct {
	ctx context.Context
	Object
}

func (r readerAt) ReadAt(p []byte, offset int64) (int, error) {
	n := max(0, min(int64(len(p)), r.Size()-offset))
	if n > 0 {
		if err := r.Object.ReadAt(r.ctx, p[:n], offset); err != nil {
			return 0, err
		}
	}
	if n < int64(len(p)) {
		return int(n), io.EOF
	}
	return int(n), nil
}

// ReadAll reads the content of an object. If the object has more than maxBytes bytes, it returns an
// error.
func ReadAll(ctx context.Context, s Store, name string, maxBytes int64) (data []byte, err error) {
	o, err := s.Open(ctx, name)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, o.Close()) }()
	if o.Size() > maxBytes {
		return nil, WrapError("read", name, s, &errkind.Fault{Op: "storage: object",
			Reason: fmt.Sprintf("it has %d bytes, at most %d are read", o.Size(), maxBytes), Class: errkind.ValueError})
	}
	data = make([]byte, o.Size())
	if err := o.ReadAt(ctx, data, 0); err != nil {
		return nil, err
	}
	return data, nil
}

// ReadOrPut reads the content of an object. If the object does not exist, it puts data and returns
// data. If several processes call it concurrently, all of them return the data of the same process.
// If the object has more than maxBytes bytes, it returns an error.
func ReadOrPut(ctx context.Context, s Store, name string, data []byte, maxBytes int64) ([]byte, error) {
	existing, err := ReadAll(ctx, s, name, maxBytes)
	if !errors.Is(err, ErrNotExist) {
		return existing, err
	}
	switch err := PutBytes(ctx, s, name, data, PutOptions{IfAbsent: true}); {
	case err == nil:
		return data, nil
	case !errors.Is(err, ErrExists):
		return nil, err
	}
	return ReadAll(ctx, s, name, maxBytes) // another process was first
}
