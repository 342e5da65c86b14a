//go:build !linux

package child

import "os/exec"

// killWithParent does nothing. The child exits when its standard input is closed.
func killWithParent(*exec.Cmd) {}
