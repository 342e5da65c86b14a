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

// Holder is a process that is using the TPU.
type Holder struct {
	// PID is the process id.
	PID int
	// Command is the command line of the process, truncated to one short line. It is "" if it
	// cannot be read.
	Command string
	// OpenFiles lists the TPU devices and lock files that the process has open.
	OpenFiles []string
}

// String describes the process, as in `process 30 ("python3 train.py") has /dev/accel0 open`.
func (h Holder) String() string {
	text := fmt.Sprintf("process %d", h.PID)
	if h.Command != "" {
		text += " (" + h.Command + ")"
	}
	return text + " has " + strings.Join(h.OpenFiles, ", ") + " open"
}

// LockedError reports that another process is using the TPU. Only one process at a time can use the
// TPU of a host.
type LockedError struct {
	// Holders lists the processes that are using the TPU, as far as this user can see them.
	Holders []Holder
	// LockFile is the path of libtpu's lock file if the file exists, and "" otherwise.
	LockFile string
	// Err is the error of libtpu.
	Err error
}

// Error returns a message with the processes, the error of libtpu and the correction.
func (e *LockedError) Error() string {
	if len(e.Holders) == 0 {
		hint := "run fuser as root on the TPU's device files"
		if e.LockFile != "" {
			hint += "; if no process uses the TPU, remove the lock file of a crashed process: sudo rm -f " + e.LockFile
		}
		return errkind.Format("the TPU is in use", "by a process that this user cannot see, or the lock file is stale", e.Err,
			hint)
	}
	holders, pids := make([]string, len(e.Holders)), make([]string, len(e.Holders))
	for i, h := range e.Holders {
		holders[i], pids[i] = h.String(), strconv.Itoa(h.PID)
	}
	return errkind.Format("the TPU is in use", strings.Join(holders, ", "), e.Err,
		"stop it with kill "+strings.Join(pids, " ")+", or wait until it exits")
}

// Kind returns FailedPreconditionError, because the other process has to exit first.
func (*LockedError) Kind() errkind.Kind { return errkind.FailedPreconditionError }

// Unwrap returns the error of libtpu.
func (e *LockedError) Unwrap() error { return e.Err }

// hostPaths contains the paths at which the TPU of a host, and the processes that use it, are detected.
type hostPaths struct {
	dev      string // device files
	pci      string // devices of the PCI bus
	proc     string // process file system
	lockFile string // lock file of libtpu
	selfPID  int    // id of this process
	root     string // prefix for hostfacts, "" means "/"
}

func localHost() hostPaths {
	return hostPaths{dev: "/dev", pci: "/sys/bus/pci/devices", proc: "/proc", lockFile: "/tmp/libtpu_lockfile",
		selfPID: os.Getpid()}
}

// newLockedError returns a *LockedError if err is libtpu's error for a TPU in use, and nil otherwise.
func newLockedError(err error, host hostPaths) error {
	var locked *LockedError
	// These texts are parts of libtpu's messages for a TPU in use.
	patterns := []string{"lockfile", "already in use", "Device or resource busy", "already acquired"}
	matches := func(pattern string) bool { return strings.Contains(err.Error(), pattern) }
	if errors.As(err, &locked) || !slices.ContainsFunc(patterns, matches) {
		return nil
	}
	e := &LockedError{Holders: host.findHolders(), Err: err}
	if _, err := os.Stat(host.lockFile); err == nil {
		e.LockFile = host.lockFile
	}
	return e
}

// retryWhileBusy calls create. If create reports that the TPU is in use but no running process uses
// the TPU, retryWhileBusy repeats the call every second, for at most Options.BusyTimeout.
func retryWhileBusy[T any](ctx context.Context, s *starter, create func() (T, error)) (T, error) {
	limit := s.opts.BusyTimeout
	if limit == 0 {
		limit = time.Minute
	}
	start := time.Now()
	for nextLog := time.Duration(0); ; { // nextLog is relative to start
		value, err := create()
		var locked *LockedError
		if err == nil || !errors.As(newLockedError(err, localHost()), &locked) || len(locked.Holders) > 0 ||
			time.Since(start) >= limit {
			return value, err
		}
		if waited := time.Since(start); waited >= nextLog {
			s.logger.Warn("system: the TPU is in use, but no running process uses it; retrying every second",
				"for", limit-waited.Truncate(time.Second), "error", err)
			nextLog = waited + 10*time.Second
		}
		select {
		case <-ctx.Done():
			return value, err
		case <-time.After(time.Second):
		}
	}
}

// findHolders returns the other processes that have TPU files open, ordered by process id.
func (h hostPaths) findHolders() []Holder {
	entries, err := os.ReadDir(h.proc)
	if err != nil {
		return nil
	}
	var out []Holder
	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil || pid == h.selfPID {
			continue
		}
		dir := filepath.Join(h.proc, entry.Name())
		if holds := h.openTPUFiles(dir); len(holds) > 0 {
			out = append(out, Holder{PID: pid, Command: commandLine(dir), OpenFiles: holds})
		}
	}
	slices.SortFunc(out, func(a, b Holder) int { return a.PID - b.PID })
	return out
}

// openTPUFiles returns the TPU files that the process with the given /proc directory has open. The
// result is empty for processes of other users that this user cannot inspect.
func (h hostPaths) openTPUFiles(dir string) []string {
	fds, err := os.ReadDir(filepath.Join(dir, "fd"))
	if err != nil {
		return nil
	}
	lock, lockErr := os.Stat(h.lockFile)
	var files []string
	for _, fd := range fds {
		path := filepath.Join(dir, "fd", fd.Name())
		target, err := os.Readlink(path)
		if err != nil {
			continue
		}
		switch {
		case strings.HasPrefix(target, "/dev/accel"), strings.HasPrefix(target, "/dev/vfio/") && target != "/dev/vfio/vfio":
			files = append(files, target)
		case lockErr == nil && target == h.lockFile:
			files = append(files, target)
		case lockErr == nil:
			// The lock file can have another path because of mounts and links.
			if open, err := os.Stat(path); err == nil && os.SameFile(open, lock) {
				files = append(files, h.lockFile)
			}
		}
	}
	slices.Sort(files)
	return slices.Compact(files)
}

// commandLine returns the quoted command line of the process with the given /proc directory.
func commandLine(dir string) string {
	data, err := os.ReadFile(filepath.Join(dir, "cmdline"))
	if err != nil {
		return ""
	}
	text := strings.Join(strings.Fields(strings.ReplaceAll(string(data), "\x00", " ")), " ")
	const limit = 120
	if len(text) > limit {
		text = text[:limit] + "..."
	}
	return strconv.Quote(text)
}
