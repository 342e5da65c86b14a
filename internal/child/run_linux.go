package child

import (
	"os/exec"
	"syscall"
)

// isolate keeps a terminal's signals from the child, which its parent ends, and ends the child with
// its parent, whatever the child is doing.
func isolate(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
}
