package system

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var errLock = errors.New("cannot access libtpu multi-process lockfile")

func TestHoldersAreFoundByOpenFiles(t *testing.T) {
	dir := t.TempDir()
	lock := filepath.Join(dir, "lockfile")
	require.NoError(t, os.WriteFile(lock, nil, 0o600))
	proc := filepath.Join(dir, "proc")
	process := func(pid, command string, files ...string) {
		fd := filepath.Join(proc, pid, "fd")
		require.NoError(t, os.MkdirAll(fd, 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(proc, pid, "cmdline"), []byte(command), 0o644))
		for i, f := range files {
			require.NoError(t, os.Symlink(f, filepath.Join(fd, string(rune('0'+i)))))
		}
	}
	process("30", "python3\x00train.py\x00", "/dev/null", "/dev/accel1", "/dev/accel0", "/dev/accel0")
	process("4", "vfio\x00", "/dev/vfio/vfio", "/dev/vfio/12")
	process("7", "idle\x00", "/dev/null", "/dev/vfio/vfio", "socket:[1]")
	process("9", strings.Repeat("long ", 100), lock)
	process("11", "self\x00", "/dev/accel0")
	require.NoError(t, os.MkdirAll(filepath.Join(proc, "self"), 0o755))
	require.NoError(t, os.MkdirAll(filepath.Join(proc, "12"), 0o755)) // an exited process, or a process of another user

	var locked *LockedError
	require.ErrorAs(t, newLockedError(errLock, hostPaths{proc: proc, lockFile: lock, selfPID: 11}), &locked)
	assert.Equal(t, lock, locked.LockFile)
	require.Len(t, locked.Holders, 3)
	assert.Equal(t, Holder{PID: 4, Command: `"vfio"`, OpenFiles: []string{"/dev/vfio/12"}}, locked.Holders[0])
	assert.Equal(t, 9, locked.Holders[1].PID)
	assert.Equal(t, []string{lock}, locked.Holders[1].OpenFiles)
	assert.Less(t, len(locked.Holders[1].Command), 140)
	assert.Equal(t, Holder{PID: 30, Command: `"python3 train.py"`, OpenFiles: []string{"/dev/accel0", "/dev/accel1"}},
		locked.Holders[2])
	assert.Contains(t, locked.Error(), `process 30 ("python3 train.py") has /dev/accel0, /dev/accel1 open`)
	assert.Contains(t, locked.Error(), "kill 4 9 30")
	assert.ErrorIs(t, locked, errLock)

	require.ErrorAs(t, newLockedError(errLock, hostPaths{proc: filepath.Join(dir, "none"), lockFile: lock}), &locked)
	assert.Contains(t, locked.Error(), "sudo rm -f "+lock)
	require.ErrorAs(t, newLockedError(errLock, hostPaths{proc: proc, lockFile: filepath.Join(dir, "none"), selfPID: 11}),
		&locked)
	assert.Empty(t, locked.LockFile)
	assert.NoError(t, newLockedError(errors.New("out of memory"), localHost()))
}

func TestHolderProcessIsFound(t *testing.T) {
	if _, err := os.Stat("/proc/self/fd"); err != nil {
		t.Skip("no process file system: ", err)
	}
	lock := filepath.Join(t.TempDir(), "lockfile")
	cmd := exec.Command("sh", "-c", `exec 9>"$0"; echo ready; read x`, lock)
	in, err := cmd.StdinPipe()
	require.NoError(t, err)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	defer func() { _ = in.Close(); _ = cmd.Wait() }()
	ready := make([]byte, 6)
	_, err = out.Read(ready)
	require.NoError(t, err)
	host := localHost()
	host.lockFile = lock
	start := time.Now()
	var locked *LockedError
	require.ErrorAs(t, newLockedError(errLock, host), &locked)
	assert.Less(t, time.Since(start), 10*time.Second)
	require.Len(t, locked.Holders, 1)
	assert.Equal(t, cmd.Process.Pid, locked.Holders[0].PID)
	assert.Contains(t, locked.Holders[0].Command, "sh -c")
}
