package child

import (
	"encoding/binary"
	"errors"
	"io"
	"os"
	"sync"

	"github.com/tpustrategy/tpustrategy/errkind"
)

// Serve does a child's work: it reads the request from the standard input, answers it on the file
// that [Run] has left open, and returns. The process ends when its parent does, also in the middle
// of work. what names the command in the error of a process that Run did not start.
func Serve(what string, work func(request []byte) []byte) error {
	answers := os.NewFile(3, "answers")
	if answers == nil {
		return &errkind.Fault{Op: what, Reason: "this is started by another program, not by hand", Class: errkind.FailedPreconditionError}
	}
	if _, err := answers.Stat(); err != nil {
		return &errkind.Fault{Op: what, Reason: "this is started by another program, not by hand", Class: errkind.FailedPreconditionError}
	}
	var size [8]byte
	if _, err := io.ReadFull(os.Stdin, size[:]); err != nil {
		return &errkind.Fault{Op: what, Reason: "reading the request", Class: errkind.UnavailableError, Err: err}
	}
	// The parent is trusted, and a request arrives whole or not at all.
	request, err := io.ReadAll(io.LimitReader(os.Stdin, int64(binary.LittleEndian.Uint64(size[:]))))
	if err == nil && uint64(len(request)) != binary.LittleEndian.Uint64(size[:]) {
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		return &errkind.Fault{Op: what, Reason: "reading the request", Class: errkind.UnavailableError, Err: err}
	}
	go func() {
		// Nothing more comes: this returns when the parent has gone.
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(1)
	}()
	_, err = answers.Write(work(request))
	return errors.Join(err, answers.Close())
}

// notices is what the parent reads with Command.Notices. It stays open until the process ends.
var notices = sync.OnceValue(func() *os.File { return os.NewFile(4, "notices") })

// Note tells the parent a line about the work of [Serve]. Call it only in a child whose parent has
// set Command.Notices, which its request says.
func Note(line []byte) {
	_, _ = notices().Write(append(line, '\n')) // a parent that has gone ends this process
}
