package child

import (
	"encoding/binary"
	"errors"
	"io"
	"os"
	"sync"

	"github.com/tpustrategy/tpustrategy/errkind"
)

// Serve handles one request in a child process that [Run] has started. It reads the request from the
// standard input, calls work, and writes the result as the response. The process exits when its parent
// exits. If Run has not started the process, Serve returns an error with the name of the command.
func Serve(command string, work func(request []byte) []byte) error {
	responses := os.NewFile(3, "responses")
	if responses == nil {
		return notStartedByRunError(command)
	}
	if _, err := responses.Stat(); err != nil {
		return notStartedByRunError(command)
	}
	var size [8]byte
	if _, err := io.ReadFull(os.Stdin, size[:]); err != nil {
		return &errkind.Fault{Op: command, Reason: "reading the request", Class: errkind.UnavailableError, Err: err}
	}
	// The size needs no limit, because the parent is trusted.
	request, err := io.ReadAll(io.LimitReader(os.Stdin, int64(binary.LittleEndian.Uint64(size[:]))))
	if err == nil && uint64(len(request)) != binary.LittleEndian.Uint64(size[:]) {
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		return &errkind.Fault{Op: command, Reason: "reading the request", Class: errkind.UnavailableError, Err: err}
	}
	go func() {
		// Copy returns when the parent closes the pipe or exits.
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(1)
	}()
	_, err = responses.Write(work(request))
	return errors.Join(err, responses.Close())
}

func notStartedByRunError(command string) error {
	return &errkind.Fault{Op: command, Class: errkind.FailedPreconditionError,
		Reason: "this command is started by other programs and cannot be run directly"}
}

// noticePipe is the file from which the parent reads notices if Command.OnNotice is set.
var noticePipe = sync.OnceValue(func() *os.File { return os.NewFile(4, "notices") })

// SendNotice sends a line to the parent process. It must be called only if the parent has set
// Command.OnNotice.
func SendNotice(line []byte) {
	_, _ = noticePipe().Write(append(line, '\n')) // if the parent has exited, this process exits, too
}
