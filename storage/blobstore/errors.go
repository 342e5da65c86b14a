package blobstore

import (
	"fmt"
	"io/fs"
	"strings"
	"time"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/storage"
)

// Reason says why a store could not do what it was asked.
type Reason int

const (
	// Other is what the store does not know.
	Other Reason = iota
	// Unauthenticated says that the service does not know who asks: there are no credentials, or
	// they have expired.
	Unauthenticated
	// Denied says that who asks may not do this.
	Denied
	// NoBucket says that the bucket does not exist.
	NoBucket
	// Missing says that the object does not exist. The error matches [storage.ErrNotExist].
	Missing
	// Exists says that an object of this name is there. The error matches [storage.ErrExists].
	Exists
	// Replaced says that the object is another one than when it was opened.
	Replaced
	// Unavailable says that the service, or the way to it, failed for as long as
	// [Options].Patience.
	Unavailable
	// Stalled says that nothing moved for [Options].Stall, again and again.
	Stalled
	// Damaged says that the service has, or got, other bytes than were sent.
	Damaged
	// Refused says that the service cannot take the request as it is.
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

// String returns the reason as a part of a sentence.
func (r Reason) String() string {
	if r < 0 || int(r) >= len(reasons) {
		return fmt.Sprintf("reason %d", int(r))
	}
	return reasons[r].text
}

// again reports whether another attempt may succeed.
func (r Reason) again() bool { return r == Unavailable || r == Stalled || r == Damaged }

// Error reports what a store could not do. It matches [storage.ErrNotExist] if there is no such
// object, and [storage.ErrExists] if there is one where none may be. An error of the context stays
// visible to errors.Is.
type Error struct {
	// Op is "open", "put", "read", "list" or "remove".
	Op string
	// Place is the store, as its String says it, and Object the object's name; it is empty if it was
	// about no single object.
	Place, Object string
	// Reason says why.
	Reason Reason
	// Attempts says how often it was tried, and Passed for how long.
	Attempts int
	Passed   time.Duration
	// Err is the last attempt's error, and Hint says what to do.
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

// Kind returns the reason's kind, or the cause's for [Other]; UnavailableError if that is not known,
// because it says nothing of what the service holds.
func (e *Error) Kind() errkind.Kind {
	if e.Reason == Other {
		return errkind.Or(e.Err, errkind.UnavailableError)
	}
	return reasons[e.Reason].kind
}

// Unwrap returns the last attempt's error.
func (e *Error) Unwrap() error { return e.Err }

// Is reports whether the target is the package storage's name for the reason.
func (e *Error) Is(target error) bool {
	return e.Reason == Missing && (target == storage.ErrNotExist || target == fs.ErrNotExist) || e.Reason == Exists && target == storage.ErrExists
}

// wrong returns the error of a value that an operation cannot take.
func wrong(op, hint, format string, args ...any) error {
	return &errkind.Fault{Op: "blobstore: " + op, Reason: fmt.Sprintf(format, args...), Hint: hint, Class: errkind.ValueError}
}
