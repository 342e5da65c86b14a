package hostfacts

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// Process contains properties of a process that the kernel reports.
type Process struct {
	// State is T or t for a stopped process, Z or X for one that has exited, or another letter.
	State byte
	// StartTicks is the start time, which distinguishes processes with the same id.
	StartTicks int64
	// CPUTime is the CPU time of all threads so far.
	CPUTime time.Duration
}

// ReadProcess returns the properties of a process. The error matches fs.ErrNotExist if the process
// does not exist or the system has no /proc.
func ReadProcess(pid int) (p Process, err error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return p, err
	}
	// The command, the second field, is in parentheses and may contain any characters.
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
	return Process{State: fields[0][0], StartTicks: times[2],
		CPUTime: time.Duration(times[0]+times[1]) * (time.Second / 100)}, nil // the unit is always 1/100 s
}

// BootID returns an identifier that is different after each boot of the machine, or an empty string
// if it is unknown.
func BootID() string { return ReadText("/proc/sys/kernel/random/boot_id") }
