//go:build unix

package staging

import (
	"syscall"

	"github.com/tpustrategy/tpustrategy/errkind"
)

// Alloc allocates n zeroed bytes from the operating system, aligned to a page. The caller must free
// the memory with Free.
func Alloc(n int) ([]byte, error) {
	if n == 0 {
		return []byte{}, nil
	}
	block, err := syscall.Mmap(-1, 0, n, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_ANON|syscall.MAP_PRIVATE)
	if err != nil {
		return nil, &errkind.Fault{Op: "staging", Reason: "there is not enough host memory", Err: err,
			Class: errkind.ResourceExhaustedError,
			Hint:  "split the variable over more devices"}
	}
	adviseHugePages(block)
	return block, nil
}

// Free returns memory of Alloc to the operating system. The memory must not be used afterwards.
func Free(block []byte) {
	if cap(block) > 0 {
		_ = syscall.Munmap(block[:cap(block)])
	}
}
