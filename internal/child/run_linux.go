package child

import (
	"os/exec"
	"syscall"
)

// killWithParent protects the child from signals of the terminal, because the parent stops it, and
// makes the kernel kill the child when the parent exits.
func killWithParent(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
}
