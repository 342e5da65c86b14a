//go:build unix

package staging

import (
	"syscall"

	"github.com/tpustrategy/tpustrategy/errkind"
)

// memory asks the system for n bytes.
func memory(n int) ([]byte, error) {
	if n == 0 {
		return []byte{}, nil
	}
	block, err := syscall.Mmap(-1, 0, n, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_ANON|syscall.MAP_PRIVATE)
	if err != nil {
		return nil, &errkind.Fault{Op: "staging", Reason: "no memory on the host", Err: err, Class: errkind.ResourceExhaustedError,
			Hint: "split the variable over more devices"}
	}
	huge(block)
	return block, nil
}

func unmap(block []byte) {
	if cap(block) > 0 {
		_ = syscall.Munmap(block[:cap(block)])
	}
}
