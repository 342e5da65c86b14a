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
	// Other is any cause that the store does not recognize.
	Other Reason = iota
	// Unauthenticated means that the credentials are missing or invalid.
	Unauthenticated
	// Denied means that the account lacks a permission.
	Denied
	// NoBucket means that the bucket does not exist.
	NoBucket
	// Missing means that the object does not exist. The error matches [storage.ErrNotExist].
	Missing
	// Exists means that an object of this name exists already. The error matches
	// [storage.ErrExists].
	Exists
	// Replaced means that the object was replaced after it was opened.
	Replaced
	// Unavailable means that the service or the network failed for [Options].Patience.
	Unavailable
	// Stalled means that all attempts made no progress for [Options].Stall.
	Stalled
	// Damaged means that data was corrupted in transfer or a response is malformed.
	Damaged
	// Refused means that the service rejected the request as invalid.
	Refused
)

var reasons = [...]struct {
	text, hint string
	kind       errkind.Kind
}{
	Other:           {"it failed", "", errkind.UnavailableError},
	Unauthenticated: {"not authenticated", "give the process credentials that the service accepts", errkind.PermissionDeniedError},
	Denied:          {"permission denied", "let the account read, write, list and remove objects of the bucket", errkind.PermissionDeniedError},
	NoBucket:        {"there is no such bucket", "make the bucket, or correct its name", errkind.NotFoundError},
	Missing:         {"there is no such object", "", errkind.NotFoundError},
	Exists:          {"an object of this name is there", "", errkind.FailedPreconditionError},
	Replaced:        {"it was replaced after it was opened", "open it again", errkind.FailedPreconditionError},
	Unavailable:     {"the service, or the way to it, fails", "try again later; Options.Patience says for how long a store tries", errkind.UnavailableError},
	Stalled:         {"nothing moves", "look at the network; Options.Stall says how long a store waits for a byte", errkind.UnavailableError},
	Damaged:         {"other bytes arrived than were sent", "look at the endpoint, the network and this machine's memory", errkind.DataLossError},
	Refused:         {"the service refuses it", "", errkind.InvalidArgumentError},
}

// String returns a description of the reason.
func (r Reason) String() string {
	if r < 0 || int(r) >= len(reasons) {
		return fmt.Sprintf("reason %d", int(r))
	}
	return reasons[r].text
}

// again reports whether another attempt may succeed.
func (r Reason) again() bool { return r == Unavailable || r == Stalled || r == Damaged }

// Error is the error of an operation of a store. It matches [storage.ErrNotExist] for the reason
// [Missing] and [storage.ErrExists] for the reason [Exists]. It wraps the error of a canceled
// context.
type Error struct {
	// Op is "open", "put", "read", "list" or "remove".
	Op string
	// Place is the place of the store, as returned by [Store.String]. Object is the name of the
	// object, or empty if the operation concerns no single object.
	Place, Object string
	// Reason is the cause of the error.
	Reason Reason
	// Attempts is the number of attempts, and Passed the time since the first attempt began.
	Attempts int
	Passed   time.Duration
	// Err is the error of the last attempt, and Hint is a suggestion for the user.
	Err  error
	Hint string
}

func (e *Error) Error() string {
	what := "blobstore: " + e.Op + " " + e.Place
	if e.Object != "" {
		what = "blobstore: " + e.Op + " " + strings.TrimSuffix(e.Place, "/") + "/" + e.Object
	}
	reason := e.Reason.String()
	if e.Attempts > 1 {
		reason += fmt.Sprintf(" (%d attempts in %s)", e.Attempts, e.Passed.Round(time.Millisecond))
	}
	if e.Reason == Other && e.Err != nil {
		reason = ""
	}
	return errkind.Text(what, reason, e.Err, e.Hint)
}

// Kind returns the error kind of the reason. For [Other] it returns the kind of the cause, or
// UnavailableError if that is unknown, because such an error does not show whether the object
// exists.
func (e *Error) Kind() errkind.Kind {
	if e.Reason == Other {
		return errkind.Or(e.Err, errkind.UnavailableError)
	}
	return reasons[e.Reason].kind
}

// Unwrap returns the last attempt's error.
func (e *Error) Unwrap() error { return e.Err }

// Is reports whether target is the error of package storage for the reason.
func (e *Error) Is(target error) bool {
	return e.Reason == Missing && (target == storage.ErrNotExist || target == fs.ErrNotExist) || e.Reason == Exists && target == storage.ErrExists
}

// wrong returns a ValueError for an invalid argument of an operation.
func wrong(op, hint, format string, args ...any) error {
	return &errkind.Fault{Op: "blobstore: " + op, Reason: fmt.Sprintf(format, args...), Hint: hint, Class: errkind.ValueError}
}
