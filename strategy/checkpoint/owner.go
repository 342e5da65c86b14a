package checkpoint

import (
	"crypto/rand"
	"os"
	"strconv"
	"time"

	"github.com/tpustrategy/tpustrategy/internal/hostfacts"
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
	return ownerRecord{ID: rand.Text(), Host: host, Boot: hostfacts.Boot(), PID: pid, Started: startOfProcess(pid)}
}

// runs reports whether the record's process is another one than this, and runs.
func (r ownerRecord) runs(self ownerRecord) bool {
	if r.Boot == "" || r.Boot != self.Boot || r.Started == "" || r.PID == self.PID && r.Started == self.Started {
		return false
	}
	return startOfProcess(r.PID) == r.Started
}

// startOfProcess tells a process from a later one of the same number; empty if there is none, or if
// that is not known.
func startOfProcess(pid int) string {
	p, err := hostfacts.ReadProcess(pid)
	if err != nil || p.State == 'Z' {
		return ""
	}
	return strconv.FormatInt(p.Started, 10)
}
