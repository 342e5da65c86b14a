package staging

import "syscall"

const (
	hugePage   = 2 << 20
	adviseHuge = 14 // MADV_HUGEPAGE
)

// adviseHugePages requests large pages, which reduces the number of page faults.
func adviseHugePages(block []byte) {
	if len(block) >= hugePage {
		_ = syscall.Madvise(block, adviseHuge) // an error means small pages
	}
}
