package staging

import "syscall"

const (
	hugePage   = 2 << 20
	adviseHuge = 14 // MADV_HUGEPAGE
)

// huge asks for large pages: a small one is faulted in for each 4 kB.
func huge(block []byte) {
	if len(block) >= hugePage {
		_ = syscall.Madvise(block, adviseHuge) // or small ones
	}
}
