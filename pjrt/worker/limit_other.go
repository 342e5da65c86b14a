//go:build !linux

package worker

import (
	"errors"

	"github.com/tpustrategy/tpustrategy/errkind"
)

// bound refuses a limit of the memory.
func bound(bytes int64) error {
	if bytes <= 0 {
		return nil
	}
	return &errkind.Fault{Op: "bound the memory", Reason: "this system cannot", Err: errors.ErrUnsupported, Hint: "leave Options.MemoryBytes 0"}
}

// yield does nothing here.
func yield() {}
