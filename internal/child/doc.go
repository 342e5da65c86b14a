// Package child runs work in a separate process, so that a crash or a hang of the work is an error.
//
// [Run] starts the process and sends a request; [Serve] is the main function of the process. The
// request is sent over the standard input, which then stays open until the parent exits, so that
// the child exits, too. On Linux, the kernel also kills the child when its parent exits. The end of
// the child's output is part of errors.
package child
