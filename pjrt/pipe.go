package pjrt

import (
	"io"
	"os"
)

// pipe passes messages of fixed size from threads of the plugin to a goroutine. The goroutine is
// necessary because a plugin thread may call back during a call of this package and therefore must
// not run other code than the write to the pipe.
type pipe struct {
	readEnd, writeEnd *os.File
	writeFD           uintptr // the writing end, in blocking mode
	stopped           chan struct{}
}

// openPipe opens a pipe for messages of size bytes and starts a goroutine that calls handle for
// each message. The goroutine reuses the slice.
func openPipe(size int, handle func(message []byte)) (*pipe, error) {
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	p := &pipe{readEnd: r, writeEnd: w, writeFD: w.Fd(), stopped: make(chan struct{})}
	go func() {
		defer close(p.stopped)
		message := make([]byte, size)
		for {
			if _, err := io.ReadFull(r, message); err != nil {
				return // the pipe is closed
			}
			handle(message)
		}
	}()
	return p, nil
}

// close closes the pipe and waits until handle has returned. The threads must have stopped writing.
func (p *pipe) close() {
	_ = p.writeEnd.Close()
	<-p.stopped
	_ = p.readEnd.Close()
}
