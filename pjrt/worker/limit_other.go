//go:build !linux

package worker

import (
	"errors"

	"github.com/tpustrategy/tpustrategy/errkind"
)

// limitMemory returns an error unless bytes is 0, because this operating system is not supported.
func limitMemory(bytes int64) error {
	if bytes <= 0 {
		return nil
	}
	return &errkind.Fault{Op: "limit the memory", Reason: "this operating system has no such limit",
		Err: errors.ErrUnsupported, Hint: "set Options.MemoryBytes to 0"}
}

// preferOOMKill does nothing.
func preferOOMKill() {}
