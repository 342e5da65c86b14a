package child

import (
	"os/exec"
	"syscall"
)

// killWithParent makes the kernel kill the child when the parent exits. It also protects the child
// from signals of the terminal, so that only the parent stops the child.
func killWithParent(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
}
