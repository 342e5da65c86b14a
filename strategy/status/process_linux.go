package status

import (
	"bytes"
	"os"
	"strconv"
	"strings"
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
