package blobstore

import (
	"fmt"
	"io/fs"
	"strings"
	"time"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/storage"
)

// Reason is the cause of an [Error].
type Reason int

const (
	// Unknown is a cause that the store does not recognize.
	Unknown Reason = iota
	// Unauthenticated means that the credentials are missing or invalid.
	Unauthenticated
	// PermissionDenied means that the account lacks a permission.
	PermissionDenied
	// BucketNotFound means that the bucket does not exist.
	BucketNotFound
	// NotFound means that the object does not exist. The error matches [storage.ErrNotExist].
	NotFound
	// AlreadyExists means that an object of this name exists already. The error matches
	// [storage.ErrExists].
	AlreadyExists
	// Replaced means that the object was replaced after it was opened.
	Replaced
	// Unavailable means that the service or the network failed for [Options].RetryTimeout.
	Unavailable
	// Stalled means that all attempts made no progress for [Options].StallTimeout.
	Stalled
	// Corrupted means that data was corrupted in transfer or a response is malformed.
	Corrupted
	// InvalidRequest means that the service rejected the request as invalid.
	InvalidRequest
)

var reasonTable = [...]struct {
	text, hint string
	kind       errkind.Kind
}{
	Unknown:         {"it failed", "", errkind.UnavailableError},
	Unauthenticated: {"not authenticated", "provide credentials that the service accepts", errkind.PermissionDeniedError},
	PermissionDenied: {"permission denied", "allow the account to read, write, list and remove objects of the bucket",
		errkind.PermissionDeniedError},
	BucketNotFound: {"there is no such bucket", "create the bucket, or correct its name", errkind.NotFoundError},
	NotFound:       {"there is no such object", "", errkind.NotFoundError},
	AlreadyExists:  {"an object of this name exists already", "", errkind.FailedPreconditionError},
	Replaced:       {"it was replaced after it was opened", "open it again", errkind.FailedPreconditionError},
	Unavailable: {"the service or the network failed", "try again later, or raise Options.RetryTimeout",
		errkind.UnavailableError},
	Stalled: {"the transfer stalled", "check the network, or raise Options.StallTimeout",
		errkind.UnavailableError},
	Corrupted: {"the received bytes differ from the sent bytes",
		"check the endpoint, the network and the memory of this machine", errkind.DataLossError},
	InvalidRequest: {"the service rejected the request", "", errkind.InvalidArgumentError},
}

// String returns a description of the reason.
func (r Reason) String() string {
	if r < 0 || int(r) >= len(reasonTable) {
		return fmt.Sprintf("reason %d", int(r))
	}
	return reasonTable[r].text
}

// isTemporary reports whether another attempt may succeed.
func (r Reason) isTemporary() bool { return r == Unavailable || r == Stalled || r == Corrupted }

// Error is the error of an operation of a store. It matches [storage.ErrNotExist] for the reason
// [NotFound] and [storage.ErrExists] for the reason [AlreadyExists], and wraps the error of a
// canceled context.
type Error struct {
	// Op is "open", "put", "read", "list" or "remove".
	Op string
	// Store is the name of the store, as returned by [Store.String]. Object is the name of the
	// object; it is empty if the operation does not concern a single object.
	Store, Object string
	// Reason is the cause of the error.
	Reason Reason
	// Attempts is the number of attempts, and Elapsed the time since the first attempt began.
	Attempts int
	Elapsed  time.Duration
	// Err is the error of the last attempt, and Hint is a suggestion for the user.
	Err  error
	Hint string
}

func (e *Error) Error() string {
	subject := "blobstore: " + e.Op + " " + e.Store
	if e.Object != "" {
		subject = "blobstore: " + e.Op + " " + strings.TrimSuffix(e.Store, "/") + "/" + e.Object
	}
	reason := e.Reason.String()
	if e.Attempts > 1 {
		reason += fmt.Sprintf(" (%d attempts in %s)", e.Attempts, e.Elapsed.Round(time.Millisecond))
	}
	if e.Reason == Unknown && e.Err != nil {
		reason = ""
	}
	return errkind.Format(subject, reason, e.Err, e.Hint)
}

// Kind returns the error kind of the reason. For [Unknown] it returns the kind of the cause, or
// UnavailableError if the cause has no kind, because such an error does not show whether the object
// exists.
func (e *Error) Kind() errkind.Kind {
	if e.Reason == Unknown {
		return errkind.KindOr(e.Err, errkind.UnavailableError)
	}
	return reasonTable[e.Reason].kind
}

func (e *Error) Unwrap() error { return e.Err }

// Is reports whether target is the error of package storage that corresponds to the reason.
func (e *Error) Is(target error) bool {
	return e.Reason == NotFound && (target == storage.ErrNotExist || target == fs.ErrNotExist) ||
		e.Reason == AlreadyExists && target == storage.ErrExists
}

func valueError(op, hint, format string, args ...any) error {
	return &errkind.Fault{Op: "blobstore: " + op, Reason: fmt.Sprintf(format, args...), Hint: hint,
		Class: errkind.ValueError}
}
