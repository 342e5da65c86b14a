package worker

import (
	"fmt"
	"os"
	"syscall"

	"github.com/tpustrategy/tpustrategy/errkind"
)

// rlimitData is RLIMIT_DATA, the limit for the writable memory of a process.
const rlimitData = 2

// limitMemory limits the writable memory of this process. 0 means no limit.
func limitMemory(bytes int64) error {
	if bytes <= 0 {
		return nil
	}
	limit := syscall.Rlimit{Cur: uint64(bytes), Max: uint64(bytes)}
	if err := syscall.Setrlimit(rlimitData, &limit); err != nil {
		return &errkind.Fault{Op: "limit the memory", Reason: fmt.Sprintf("%d bytes", bytes), Err: err,
			Hint: "check Options.MemoryBytes"}
	}
	return nil
}

// preferOOMKill makes the kernel kill this process before others when memory runs out. Errors are
// ignored.
func preferOOMKill() { _ = os.WriteFile("/proc/self/oom_score_adj", []byte("500"), 0) }
