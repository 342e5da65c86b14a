package cache

import (
	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/pjrt"
)

// fail is the error of an operation for a cause that says what to do.
func fail(op string, cause error) error { return &errkind.Fault{Op: "cache: " + op, Err: cause} }

// errZero is the error of a zero Cache.
var errZero = &errkind.Fault{Op: "cache: compile", Reason: "the cache is a zero value", Err: pjrt.ErrClosed, Hint: "make it with Open"}
