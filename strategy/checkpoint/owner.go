package checkpoint

import (
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"
)

// ownerRecord is what the lock file says of the run that changed the directory last. A run is one
// [Directory] of one process.
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

// maxRecord bounds what is read of a lock file.
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

// readOwner reads the record in a lock file. One that is not whole says nothing.
func readOwner(f io.ReaderAt) (r ownerRecord, ok bool) {
	data := make([]byte, maxRecord)
	n, err := f.ReadAt(data, 0)
	if err != io.EOF || json.Unmarshal(data[:n], &r) != nil || r.ID == "" {
		return ownerRecord{}, false
	}
	return r, true
}

// write puts the record into a lock file. It is a help for the next run and no part of a
// checkpoint, so that a full disk is no failure of the save.
func (r ownerRecord) write(f *os.File, step int64) {
	r.Time, r.Step = time.Now().UTC().Truncate(time.Second), step
	data, err := json.Marshal(r)
	if err == nil && f.Truncate(0) == nil {
		_, _ = f.WriteAt(data, 0)
	}
}

// runs reports whether the record's process is another one than this, and runs.
func (r ownerRecord) runs(self ownerRecord) bool {
	if r.Boot == "" || r.Boot != self.Boot || r.Started == "" || r.PID == self.PID && r.Started == self.Started {
		return false
	}
	return startOfProcess(r.PID) == r.Started
}

// conflict is the error of a run that saved where this one does not expect it.
func (d *Directory) conflict(r ownerRecord, running bool, step int64) error {
	return &OwnerError{Directory: d.path, Host: r.Host, PID: r.PID, Since: r.Time, Step: step, Running: running}
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
