package checkpoint

import (
	"crypto/rand"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// ownerRecord is what owner.json says of the run that saves to a store. A run is one [Manager] of
// process 0.
type ownerRecord struct {
	ID   string `json:"id"`
	Host string `json:"host"`
	// Boot is the start of the machine, PID and Started a process and its start there: together
	// they say whether it is the same process that runs now.
	Boot    string    `json:"boot,omitempty"`
	PID     int       `json:"pid"`
	Started string    `json:"started,omitempty"`
	Time    time.Time `json:"time"`
	Step    int64     `json:"step"`
}

// maxRecord bounds what is believed of a record.
const maxRecord = 4 << 10

// newOwner is a run of this process.
func newOwner() ownerRecord {
	host, err := os.Hostname()
	if err != nil {
		host = "this machine"
	}
	pid := os.Getpid()
	return ownerRecord{ID: rand.Text(), Host: host, Boot: bootOfMachine(), PID: pid, Started: startOfProcess(pid)}
}

// runs reports whether the record's process is another one than this, and runs.
func (r ownerRecord) runs(self ownerRecord) bool {
	if r.Boot == "" || r.Boot != self.Boot || r.Started == "" || r.PID == self.PID && r.Started == self.Started {
		return false
	}
	return startOfProcess(r.PID) == r.Started
}

// bootOfMachine tells one start of a machine from another; empty if not known.
func bootOfMachine() string {
	id, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(id))
}

// startOfProcess tells a process from a later one of the same number; empty if there is none, or if
// that is not known.
func startOfProcess(pid int) string {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return ""
	}
	// The command, the second field, is in parentheses and may hold anything.
	_, rest, _ := strings.Cut(string(stat[strings.LastIndexByte(string(stat), ')')+1:]), " ")
	fields := strings.Fields(rest)
	const start = 19 // the 22nd field
	if len(fields) <= start || fields[0] == "Z" {
		return ""
	}
	if _, err := strconv.ParseUint(fields[start], 10, 64); err != nil {
		return ""
	}
	return fields[start]
}
