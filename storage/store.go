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

// Store holds objects under names. Its methods are safe for concurrent use. An error of a context
// stays visible to errors.Is; other errors name the object.
type Store interface {
	// Put writes an object, whole or not at all. It takes the place of an object of the same name,
	// unless opts say otherwise. The object is all that write writes. A store calls write again, from
	// the beginning, where it tries again. An error of write is returned and nothing is put.
	//
	// When Put returns, the object is there for every reader and outlasts a loss of power.
	Put(ctx context.Context, name string, opts PutOptions, write func(w io.Writer) error) error
	// Open opens an object to read ranges of it. The error of one that is not there matches
	// [ErrNotExist].
	Open(ctx context.Context, name string) (Object, error)
	// List returns the objects whose names begin with prefix, ascending by name. The prefix may end
	// within a name's element. A listing may lag behind a Put of another process.
	List(ctx context.Context, prefix string) ([]Info, error)
	// Remove removes an object. One that is not there is no error.
	Remove(ctx context.Context, name string) error
	// String returns the place, a path or a URL, for messages.
	String() string
	// Close releases what the store holds. Its objects stay.
	Close() error
}

// Object is an open object. It is safe for concurrent use.
type Object interface {
	// Size is the object's length in bytes.
	Size() int64
	// ReadAt fills p with what begins at offset. The error of an object that ends before matches
	// io.ErrUnexpectedEOF.
	ReadAt(ctx context.Context, p []byte, offset int64) error
	Close() error
}

// PutOptions say how an object is put. The zero value works.
type PutOptions struct {
	// IfAbsent leaves an object of the same name as it is; the error then matches [ErrExists]. Of
	// several writers at a time one succeeds.
	IfAbsent bool
	// Size is the object's length in bytes, if it is known, and otherwise 0. It is a hint for speed.
	Size int64
	// Volatile says that the object is of no use after a loss of power, such as a sign of life: it need
	// not be brought to the disk. Where there is no room for another one, the object of the same name
	// is written over, and a reader may see a part of it.
	Volatile bool
}

// Info describes an object of a listing.
type Info struct {
	Name string
	Size int64
	// Modified is when the object was put, by the store's clock.
	Modified time.Time
}

// Sweeper is a store in which a process that was killed can leave files and folders that are no objects.
type Sweeper interface {
	// Sweep removes such leftovers whose names begin with prefix, unless live returns true: for a file
	// whose Put is still under way, or for a folder to keep. A leftover is an unfinished file, whose name
	// begins with the folder of its object, or an empty folder, whose name ends in a slash.
	Sweep(ctx context.Context, prefix string, live func(name string) bool) error
}

var (
	// ErrExists matches the error of a Put of an object that was to be absent, and is there.
	ErrExists = errkind.New(errkind.FailedPreconditionError, "storage: the object exists already")
	// ErrNotExist matches the error of an object that is not there. It matches fs.ErrNotExist too.
	ErrNotExist error = notExist{}
)

type notExist struct{}

func (notExist) Error() string        { return "storage: no such object" }
func (notExist) Kind() errkind.Kind   { return errkind.NotFoundError }
func (notExist) Is(target error) bool { return target == fs.ErrNotExist }

// Failed returns the error of an operation of a store on an object, for packages that implement
// stores: "storage: op name in place: cause". A cause that matches ErrExists, ErrNotExist or a
// context's error goes on matching it.
func Failed(op, name string, in Store, cause error) error {
	if cause == nil {
		return nil
	}
	subject := in.String()
	if name != "" {
		subject = fmt.Sprintf("%s in %s", name, in)
	}
	f := &errkind.Fault{Op: "storage: " + op, Subject: subject, Err: cause}
	if errkind.Of(cause) == errkind.Unknown {
		f.Class = errkind.RuntimeError
	}
	return f
}

// CheckName returns an error unless name can be an object's: elements between slashes, none of them
// empty, "." or "..", none that begins with a dot, and no backslash or control character.
func CheckName(name string) error {
	wrong := func(reason string) error {
		return &errkind.Fault{Op: "storage: name", Subject: fmt.Sprintf("%q", name), Reason: reason, Class: errkind.ValueError,
			Hint: `give a name such as "status/host-0003.json"`}
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

// PutBytes puts an object of the given bytes.
func PutBytes(ctx context.Context, s Store, name string, data []byte, opts PutOptions) error {
	opts.Size = int64(len(data))
	return s.Put(ctx, name, opts, func(w io.Writer) error {
		_, err := w.Write(data)
		return err
	})
}

// ReaderAt returns a reader of an object that reads it as a file is read, until ctx ends.
func ReaderAt(ctx context.Context, o Object) io.ReaderAt { return readerAt{ctx, o} }

type readerAt struct {
	ctx context.Context
	Object
}

func (r readerAt) ReadAt(p []byte, at int64) (int, error) {
	n := max(0, min(int64(len(p)), r.Size()-at))
	if n > 0 {
		if err := r.Object.ReadAt(r.ctx, p[:n], at); err != nil {
			return 0, err
		}
	}
	if n < int64(len(p)) {
		return int(n), io.EOF
	}
	return int(n), nil
}

// ReadAll reads a whole object of at most most bytes.
func ReadAll(ctx context.Context, s Store, name string, most int64) (data []byte, err error) {
	o, err := s.Open(ctx, name)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, o.Close()) }()
	if o.Size() > most {
		return nil, Failed("read", name, s, &errkind.Fault{Op: "storage: object", Reason: fmt.Sprintf("it has %d bytes, at most %d are read", o.Size(), most), Class: errkind.ValueError})
	}
	data = make([]byte, o.Size())
	if err := o.ReadAt(ctx, data, 0); err != nil {
		return nil, err
	}
	return data, nil
}

// ReadOrPut reads a whole object of at most most bytes, and puts data where there is none. Of several
// processes that do so at a time all return the bytes of one.
func ReadOrPut(ctx context.Context, s Store, name string, data []byte, most int64) ([]byte, error) {
	there, err := ReadAll(ctx, s, name, most)
	if !errors.Is(err, ErrNotExist) {
		return there, err
	}
	switch err := PutBytes(ctx, s, name, data, PutOptions{IfAbsent: true}); {
	case err == nil:
		return data, nil
	case !errors.Is(err, ErrExists):
		return nil, err
	}
	return ReadAll(ctx, s, name, most) // another process was first
}
