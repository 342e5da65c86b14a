package status

import (
	"bytes"
	"os"
	"strconv"
	"strings"
	"time"
)

// Machine says on which machine, and among which of its processes, the number of this process
// counts. It is empty where that is not known.
func Machine() string {
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	space, err := os.Readlink("/proc/self/ns/pid")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(boot)) + " " + space
}

// ticks are those of a second in the kernel's times of processes.
const ticks = 100

// ProcessAge is how long this process has been running; 0 where that is not known.
func ProcessAge() time.Duration {
	stat, err := os.ReadFile("/proc/self/stat")
	if err != nil {
		return 0
	}
	uptime, err := os.ReadFile("/proc/uptime")
	if err != nil {
		return 0
	}
	const start = 19 // of the fields behind the command, which may contain anything
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	up, _, _ := strings.Cut(string(uptime), " ")
	now, err := strconv.ParseFloat(up, 64)
	if err != nil || len(fields) <= start {
		return 0
	}
	began, err := strconv.ParseFloat(fields[start], 64)
	if err != nil {
		return 0
	}
	return max(time.Duration((now-began/ticks)*float64(time.Second)), 0)
}

// processState says what became of a record's process, if it is of this machine.
func processState(r *Record) string {
	if r.PID == 0 || r.Machine == "" || r.Machine != Machine() {
		return ""
	}
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(r.PID) + "/stat")
	if os.IsNotExist(err) {
		return "has ended"
	}
	if err != nil {
		return ""
	}
	// The state stands behind the command, which may contain anything.
	_, rest, _ := strings.Cut(string(stat[max(bytes.LastIndexByte(stat, ')'), 0):]), " ")
	switch state, _, _ := strings.Cut(rest, " "); state {
	case "T", "t":
		return "is stopped"
	case "Z", "X":
		return "has ended"
	}
	return ""
}
