package status

import (
	"errors"
	"io/fs"
	"os"

	"github.com/tpustrategy/tpustrategy/internal/hostfacts"
)

// Machine says on which machine, and among which of its processes, the number of this process
// counts. It is empty where /proc does not tell.
func Machine() string {
	space, err := os.Readlink("/proc/self/ns/pid")
	if boot := hostfacts.Boot(); boot != "" && err == nil {
		return boot + " " + space
	}
	return ""
}

// process says what became of a record's process, if it is of this machine: "is stopped" or "has
// ended", empty if it runs or that cannot be known.
func (r *Record) process() string {
	if r.PID == 0 || r.Machine == "" || r.Machine != Machine() {
		return ""
	}
	switch p, err := hostfacts.ReadProcess(r.PID); {
	case errors.Is(err, fs.ErrNotExist) || p.State == 'Z' || p.State == 'X':
		return "has ended"
	case p.State == 'T' || p.State == 't':
		return "is stopped"
	}
	return ""
}
