package cache

import (
	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/pjrt"
)

// opError adds the operation to cause.
func opError(op string, cause error) error { return &errkind.Fault{Op: "cache: " + op, Err: cause} }

// errZeroCache is the error of a zero Cache.
var errZeroCache = &errkind.Fault{Op: "cache: compile", Reason: "the cache is a zero value", Match: pjrt.ErrClosed,
	Hint: "create it with Open"}
