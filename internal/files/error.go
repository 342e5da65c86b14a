package files

import (
	"errors"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/internal/enum"
)

// Reason says why a path is not used.
type Reason int

const (
	// URL says that the path begins with a scheme, as in "gs://bucket": only paths of the local
	// file system are read and written.
	URL Reason = iota + 1
	// NotRegular says that a pipe, a device, a socket or a directory is where a file is expected.
	NotRegular
	// NotDirectory says that something else is where a directory is expected.
	NotDirectory
	// Link says that a symbolic link is where none is followed.
	Link
	// Foreign says that another user owns the file or directory, and could change it.
	Foreign
	// Writable says that other users may write to the file or directory.
	Writable
	// Readable says that other users may read the file, which holds a secret.
	Readable
	// TooLarge says that the file has more bytes than are read.
	TooLarge
)

// String returns the reason as a short phrase.
func (r Reason) String() string {
	return enum.Name(r, "", "it is a URL", "it is no regular file", "it is no directory", "it is a symbolic link",
		"it belongs to another user", "others may write to it", "others may read it", "it is too large")
}

// Error reports a path that is not used. The error of a URL matches errors.ErrUnsupported.
type Error struct {
	// Path is the file or the directory at fault, which may be a folder on the way to the one that
	// was named.
	Path string
	// Reason is the class of the problem.
	Reason Reason
	// Found says what was found at the path: its kind, its mode, its owner.
	Found string
	// Hint says what to do.
	Hint string
}

// Error returns "path: reason (found); hint".
func (e *Error) Error() string {
	reason := e.Reason.String()
	if e.Found != "" {
		reason += " (" + e.Found + ")"
	}
	return errkind.Text(e.Path, reason, nil, e.Hint)
}

// Kind returns NotImplementedError for a URL, PermissionDeniedError for what others could change or
// read, and ValueError otherwise.
func (e *Error) Kind() errkind.Kind { return e.Reason.kind() }

// Is makes the error of a URL match errors.ErrUnsupported.
func (e *Error) Is(target error) bool {
	return e.Reason == URL && target == errors.ErrUnsupported
}

func (r Reason) kind() errkind.Kind {
	switch r {
	case URL:
		return errkind.NotImplementedError
	case Link, Foreign, Writable, Readable:
		return errkind.PermissionDeniedError
	}
	return errkind.ValueError
}
