//go:build !linux

package worker

import (
	"errors"
	"fmt"
)

func bound(bytes int64) error {
	if bytes <= 0 {
		return nil
	}
	return fmt.Errorf("a bound of the memory: %w on this system", errors.ErrUnsupported)
}

func yield() {}
