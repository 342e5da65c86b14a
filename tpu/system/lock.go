package system

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tpustrategy/tpustrategy/errkind"
)

// Holder is a process that holds the TPU.
type Holder struct {
	// PID is the process's id.
	PID int
	// Command is the process's command line, cut to a line; "" if it cannot be read.
	Command string
	// Holds are the files that the process has open: TPU devices, the lock file.
	Holds []string
}

// String returns a text such as `process 30 ("python3 train.py") has /dev/accel0 open`.
func (h Holder) String() string {
	text := fmt.Sprintf("process %d", h.PID)
	if h.Command != "" {
		text += " (" + h.Command + ")"
	}
	return text + " has " + strings.Join(h.Holds, ", ") + " open"
}

// LockedError reports that another process holds the TPU. One process at a time can use the TPU of
// a machine.
type LockedError struct {
	// Holders are the processes that hold it, as far as this process may see them.
	Holders []Holder
	// LockFile is libtpu's lock file, if it exists.
	LockFile string
	// Err is what libtpu said.
	Err error
}

// Error returns "the TPU is in use: holders: what libtpu said; hint".
func (e *LockedError) Error() string {
	if len(e.Holders) == 0 {
		hint := "run fuser as root on the TPU's device files"
		if e.LockFile != "" {
			hint += ", and if nobody uses it, remove what a crash left behind: sudo rm -f " + e.LockFile
		}
		return errkind.Text("the TPU is in use", "by no process that this user may see", e.Err, hint)
	}
	holders, pids := make([]string, len(e.Holders)), make([]string, len(e.Holders))
	for i, h := range e.Holders {
		holders[i], pids[i] = h.String(), strconv.Itoa(h.PID)
	}
	return errkind.Text("the TPU is in use", strings.Join(holders, ", "), e.Err, "end it with kill "+strings.Join(pids, " ")+", or wait for it")
}

// Kind returns FailedPreconditionError: the other process has to end first.
func (*LockedError) Kind() errkind.Kind { return errkind.FailedPreconditionError }

// Unwrap returns what libtpu said.
func (e *LockedError) Unwrap() error { return e.Err }

// hostFiles are the files of a host that tell of its TPU and of who has it.
type hostFiles struct {
	dev      string // the device files
	pci      string // the devices of the PCI bus
	proc     string // the process file system
	lockFile string
	self     int
	root     string // before the paths of the machine's other facts; empty is "/"
}

func thisHost() hostFiles {
	return hostFiles{dev: "/dev", pci: "/sys/bus/pci/devices", proc: "/proc", lockFile: "/tmp/libtpu_lockfile", self: os.Getpid()}
}

// explainLock returns a *LockedError if err is that of a TPU in use, otherwise nil.
func explainLock(err error, host hostFiles) error {
	var already *LockedError
	// What libtpu says of a TPU that another process has.
	words := []string{"lockfile", "already in use", "Device or resource busy", "already acquired"}
	if errors.As(err, &already) || !slices.ContainsFunc(words, func(w string) bool { return strings.Contains(err.Error(), w) }) {
		return nil
	}
	e := &LockedError{Holders: host.holders(), Err: err}
	if _, err := os.Stat(host.lockFile); err == nil {
		e.LockFile = host.lockFile
	}
	return e
}

// unlessBusy creates what takes the TPU, again and again while the TPU is in use and no process that
// has it is alive, for as long as the options say.
func unlessBusy[T any](ctx context.Context, s *starter, create func() (T, error)) (T, error) {
	most := s.opts.BusyTimeout
	if most == 0 {
		most = time.Minute
	}
	began := time.Now()
	for told := time.Duration(0); ; {
		made, err := create()
		var locked *LockedError
		if err == nil || !errors.As(explainLock(err, thisHost()), &locked) || len(locked.Holders) > 0 || time.Since(began) >= most {
			return made, err
		}
		if waited := time.Since(began); waited >= told {
			s.logger.Warn("system: the TPU is in use, and no process that has it is alive: it is tried again every second", "for", most-waited.Truncate(time.Second), "error", err)
			told = waited + 10*time.Second
		}
		select {
		case <-ctx.Done():
			return made, err
		case <-time.After(time.Second):
		}
	}
}

// holders are the other processes that have the TPU's files open, by process id.
func (h hostFiles) holders() []Holder {
	entries, err := os.ReadDir(h.proc)
	if err != nil {
		return nil
	}
	var out []Holder
	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil || pid == h.self {
			continue
		}
		dir := filepath.Join(h.proc, entry.Name())
		if holds := h.holds(dir); len(holds) > 0 {
			out = append(out, Holder{PID: pid, Command: command(dir), Holds: holds})
		}
	}
	slices.SortFunc(out, func(a, b Holder) int { return a.PID - b.PID })
	return out
}

// holds are the TPU's files that a process has open. Other users' processes cannot be looked into.
func (h hostFiles) holds(dir string) []string {
	fds, err := os.ReadDir(filepath.Join(dir, "fd"))
	if err != nil {
		return nil
	}
	lock, lockErr := os.Stat(h.lockFile)
	var holds []string
	for _, fd := range fds {
		path := filepath.Join(dir, "fd", fd.Name())
		target, err := os.Readlink(path)
		if err != nil {
			continue
		}
		switch {
		case strings.HasPrefix(target, "/dev/accel"), strings.HasPrefix(target, "/dev/vfio/") && target != "/dev/vfio/vfio":
			holds = append(holds, target)
		case lockErr == nil && target == h.lockFile:
			holds = append(holds, target)
		case lockErr == nil:
			// Mounts and links give the lock file another name.
			if open, err := os.Stat(path); err == nil && os.SameFile(open, lock) {
				holds = append(holds, h.lockFile)
			}
		}
	}
	slices.Sort(holds)
	return slices.Compact(holds)
}

// command is a process's command line in one line.
func command(dir string) string {
	data, err := os.ReadFile(filepath.Join(dir, "cmdline"))
	if err != nil {
		return ""
	}
	text := strings.Join(strings.Fields(strings.ReplaceAll(string(data), "\x00", " ")), " ")
	const most = 120
	if len(text) > most {
		text = text[:most] + "..."
	}
	return strconv.Quote(text)
}
