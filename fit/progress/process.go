package progress

import (
	"cmp"
	"fmt"
	"os"
	"time"

	"github.com/tpustrategy/tpustrategy/internal/hostfacts"
)

// processMemory returns the resident memory of a process in bytes; pid 0 means this process. The
// result is 0 if it is unknown, for example without /proc or for a negative pid.
func processMemory(pid int) int64 {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/statm", cmp.Or(pid, os.Getpid())))
	var size, resident int64
	if _, err := fmt.Sscan(string(text), &size, &resident); err != nil {
		return 0
	}
	return resident * int64(os.Getpagesize())
}

// processCPUTime returns the processor time of all threads of a process, or 0 if it is unknown. pid
// 0 means this process.
func processCPUTime(pid int) time.Duration {
	p, _ := hostfacts.ReadProcess(cmp.Or(pid, os.Getpid()))
	return p.CPUTime
}
