package files

import (
	"errors"
	"fmt"

	"github.com/tpustrategy/tpustrategy/errkind"
)

// Reason says why a path is not used.
type Reason int

const (
	// URL is a path that begins with a scheme, as in "gs://bucket": only paths of the
	// local file system are read and written.
	URL Reason = iota + 1
	// NotRegular is a pipe, a device, a socket or a directory where a file is expected.
	NotRegular
	// NotDirectory is anything else where a directory is expected.
	NotDirectory
	// Link is a symbolic link where none is followed.
	Link
	// Foreign is what belongs to another user, who could change it.
	Foreign
	// Writable is what other users may write to.
	Writable
	// Readable is a secret that other users may read.
	Readable
	// TooLarge is a file of more bytes than are read.
	TooLarge
)

var reasons = [...]string{"", "it is a URL", "it is no regular file", "it is no directory", "it is a symbolic link",
	"it belongs to another user", "others may write to it", "others may read it", "it is too large"}

// String is a short phrase.
func (r Reason) String() string {
	if r < 1 || int(r) >= len(reasons) {
		return fmt.Sprintf("Reason(%d)", int(r))
	}
	return reasons[r]
}

// Error is that a path is not used. That of a URL matches errors.ErrUnsupported.
type Error struct {
	// Path is the file or the directory at fault, which may be a folder on the way to
	// the one that was named.
	Path   string
	Reason Reason
	// Found says what was found there: its kind, its mode, its owner.
	Found string
	// Hint says what to do.
	Hint string
}

func (e *Error) Error() string {
	text := fmt.Sprintf("%s: %v", e.Path, e.Reason)
	if e.Found != "" {
		text += " (" + e.Found + ")"
	}
	if e.Hint != "" {
		text += "; " + e.Hint
	}
	return text
}

// Kind is NotImplementedError for a URL, PermissionDeniedError for what others could change, otherwise ValueError.
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
