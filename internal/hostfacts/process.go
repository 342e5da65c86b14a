package hostfacts

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// Process is what the kernel says of a process.
type Process struct {
	// State is T or t for one that is stopped, Z or X for one that has ended, or another letter.
	State byte
	// Started tells the process from a later one of the same number.
	Started int64
	// Processor is the processor time so far, of all threads.
	Processor time.Duration
}

// ReadProcess reads what there is of a process. The error of one that is not there matches
// fs.ErrNotExist, as on systems without /proc.
func ReadProcess(pid int) (p Process, err error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return p, err
	}
	// The command, the second field, is in parentheses and may hold anything.
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	var times [3]int64 // in user mode, in the kernel, and of the start
	for i, field := range []int{11, 12, 19} {
		if len(fields) <= field {
			return p, os.ErrInvalid
		}
		if times[i], err = strconv.ParseInt(fields[field], 10, 64); err != nil {
			return p, err
		}
	}
	return Process{State: fields[0][0], Started: times[2], Processor: time.Duration(times[0]+times[1]) * (time.Second / 100)}, nil // Linux tells all programs hundredths
}

// Boot tells one start of a machine from another; it is empty if that is not known.
func Boot() string { return Text("/proc/sys/kernel/random/boot_id") }
