package worker

import (
	"fmt"
	"os"
	"syscall"

	"github.com/tpustrategy/tpustrategy/errkind"
)

// rlimitData is the limit of memory that a process may write to.
const rlimitData = 2

// bound limits the memory of this process.
func bound(bytes int64) error {
	if bytes <= 0 {
		return nil
	}
	limit := syscall.Rlimit{Cur: uint64(bytes), Max: uint64(bytes)}
	if err := syscall.Setrlimit(rlimitData, &limit); err != nil {
		return &errkind.Fault{Op: "bound the memory", Reason: fmt.Sprintf("%d bytes", bytes), Err: err, Hint: "see Options.MemoryBytes"}
	}
	return nil
}

// yield makes this process the first that the kernel ends when memory runs out. It may not be
// allowed to; then the kernel chooses.
func yield() { _ = os.WriteFile("/proc/self/oom_score_adj", []byte("500"), 0) }
