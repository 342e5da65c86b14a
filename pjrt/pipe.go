package pjrt

import (
	"io"
	"os"
)

// pipe passes messages of fixed size from threads of the plugin to a goroutine. A thread may be
// inside a call of this package, so it must do nothing except write.
type pipe struct {
	readEnd, writeEnd *os.File
	writeFD           uintptr // the writing end, in blocking mode
	stopped           chan struct{}
}

// openPipe starts a goroutine that calls handle for each message. The goroutine reuses the slice.
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

// close waits until handle has returned. No thread may write any more.
func (p *pipe) close() {
	_ = p.writeEnd.Close()
	<-p.stopped
	_ = p.readEnd.Close()
}
