package checkpoint

import (
	"crypto/rand"
	"os"
	"strconv"
	"time"

	"github.com/tpustrategy/tpustrategy/internal/hostfacts"
)

// ownerRecord is the content of owner.json, which identifies the run that saves to a store. Each
// [Manager] of process 0 counts as one run.
type ownerRecord struct {
	ID   string `json:"id"`
	Host string `json:"host"`
	// Boot is the boot time of the machine. PID and Started identify a process on it. Together they
	// detect whether the process is still running.
	Boot    string    `json:"boot,omitempty"`
	PID     int       `json:"pid"`
	Started string    `json:"started,omitempty"`
	Time    time.Time `json:"time"`
	Step    int64     `json:"step"`
}

// maxOwnerBytes is the maximum size of a record in bytes.
const maxOwnerBytes = 4 << 10

func newOwnerRecord() ownerRecord {
	host, err := os.Hostname()
	if err != nil {
		host = "this machine"
	}
	pid := os.Getpid()
	return ownerRecord{ID: rand.Text(), Host: host, Boot: hostfacts.BootID(), PID: pid, Started: processStartTime(pid)}
}

// isRunning reports whether the process that the record describes is running and is not this
// process.
func (r ownerRecord) isRunning(self ownerRecord) bool {
	if r.Boot == "" || r.Boot != self.Boot || r.Started == "" || r.PID == self.PID && r.Started == self.Started {
		return false
	}
	return processStartTime(r.PID) == r.Started
}

// processStartTime returns the time at which a process was started, or "" if the process does not
// exist or its start time is not known. The start time distinguishes processes that have the same
// PID at different times.
func processStartTime(pid int) string {
	p, err := hostfacts.ReadProcess(pid)
	if err != nil || p.State == 'Z' {
		return ""
	}
	return strconv.FormatInt(p.StartTicks, 10)
}
