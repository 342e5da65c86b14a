package progress

import (
	"fmt"
	"os"
	"strings"
	"time"
)

// memoryOf returns the resident memory of a process in bytes, of this one for 0; 0 if it is not
// known, as on systems without /proc, or for a negative number.
func memoryOf(pid int) int64 {
	var size, resident int64
	if _, err := fmt.Sscan(proc(pid, "statm"), &size, &resident); err != nil {
		return 0
	}
	return resident * int64(os.Getpagesize())
}

// processorOf returns the processor time of a process so far, of all its threads; 0 if it is not
// known, as in [memoryOf].
func processorOf(pid int) time.Duration {
	text := proc(pid, "stat")
	fields := strings.Fields(text[strings.LastIndexByte(text, ')')+1:]) // the name before may have spaces
	if len(fields) < 13 {
		return 0
	}
	var user, system int64
	if _, err := fmt.Sscan(fields[11]+" "+fields[12], &user, &system); err != nil {
		return 0
	}
	return time.Duration(user+system) * (time.Second / 100) // Linux tells all programs hundredths
}

// proc returns a file that the kernel has of a process, of this one for 0; empty if it has none.
func proc(pid int, name string) string {
	of := "self"
	if pid != 0 {
		of = fmt.Sprint(pid)
	}
	text, err := os.ReadFile("/proc/" + of + "/" + name)
	if err != nil {
		return ""
	}
	return string(text)
}
