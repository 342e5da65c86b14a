package files

import (
	"errors"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/internal/enum"
)

// Reason is the reason why a path is rejected.
type Reason int

const (
	// IsURL means that the path starts with a scheme, as in "gs://bucket". Only local paths are
	// supported.
	IsURL Reason = iota + 1
	// NotRegular means that the path is a pipe, a device, a socket or a directory instead of a file.
	NotRegular
	// NotDirectory means that the path is not a directory.
	NotDirectory
	// IsLink means that the path is a symbolic link, which is not followed.
	IsLink
	// OtherOwner means that another user owns the file or directory and could modify it.
	OtherOwner
	// OthersCanWrite means that other users can write to the file or directory.
	OthersCanWrite
	// OthersCanRead means that other users can read the file, which contains a secret.
	OthersCanRead
	// TooLarge means that the file is larger than the limit.
	TooLarge
)

// String returns the reason as a short phrase.
func (r Reason) String() string {
	return enum.Name(r, "", "it is a URL", "it is not a regular file", "it is not a directory", "it is a symbolic link",
		"it belongs to another user", "other users can write to it", "other users can read it", "it is too large")
}

// Error reports a path that was rejected. If the path is a URL, the error matches errors.ErrUnsupported.
type Error struct {
	// Path is the invalid file or directory, which may be a parent directory of the original path.
	Path string
	// Reason is the class of the problem.
	Reason Reason
	// Found describes the file at the path: its type, its mode or its owner.
	Found string
	// Hint suggests a correction.
	Hint string
}

// Error returns "path: reason (found); hint".
func (e *Error) Error() string {
	reason := e.Reason.String()
	if e.Found != "" {
		reason += " (" + e.Found + ")"
	}
	return errkind.Format(e.Path, reason, nil, e.Hint)
}

// Kind returns NotImplementedError for a URL, PermissionDeniedError for files that other users can
// modify or read, and ValueError otherwise.
func (e *Error) Kind() errkind.Kind { return e.Reason.kind() }

// Is reports whether the path is a URL and target is errors.ErrUnsupported.
func (e *Error) Is(target error) bool {
	return e.Reason == IsURL && target == errors.ErrUnsupported
}

func (r Reason) kind() errkind.Kind {
	switch r {
	case IsURL:
		return errkind.NotImplementedError
	case IsLink, OtherOwner, OthersCanWrite, OthersCanRead:
		return errkind.PermissionDeniedError
	}
	return errkind.ValueError
}
