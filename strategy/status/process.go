package status

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
)

// Machine says on which machine, and among which of its processes, the number of this process
// counts. It is empty where /proc does not tell.
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

// process says what became of a record's process, if it is of this machine: "is stopped" or "has
// ended", empty if it runs or that cannot be known.
func (r *Record) process() string {
	if r.PID == 0 || r.Machine == "" || r.Machine != Machine() {
		return ""
	}
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", r.PID))
	if errors.Is(err, fs.ErrNotExist) {
		return "has ended"
	}
	// The state stands behind the command, which may contain anything.
	_, state, _ := bytes.Cut(stat[max(bytes.LastIndexByte(stat, ')'), 0):], []byte(" "))
	switch {
	case len(state) == 0:
	case state[0] == 'T' || state[0] == 't':
		return "is stopped"
	case state[0] == 'Z' || state[0] == 'X':
		return "has ended"
	}
	return ""
}
