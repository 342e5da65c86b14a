//go:build unix

package staging

import (
	"syscall"

	"github.com/tpustrategy/tpustrategy/errkind"
)

// Take returns n bytes of the system's memory, zeroed and at the start of a page, apart from any
// pool, for Give to give back.
func Take(n int) ([]byte, error) {
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

// Give gives the memory of Take back. It must not be used any more.
func Give(block []byte) {
	if cap(block) > 0 {
		_ = syscall.Munmap(block[:cap(block)])
	}
}
