package cache

import (
	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/pjrt"
)

func opError(op string, cause error) error { return &errkind.Fault{Op: "cache: " + op, Err: cause} }

var errZeroCache = &errkind.Fault{Op: "cache: compile", Reason: "the cache is a zero value", Match: pjrt.ErrClosed,
	Hint: "create it with Open"}
