package pjrt

import (
	"io"
	"os"
)

// pipe carries messages of one size to a goroutine of ours. They come from threads of the plugin, which
// may stand inside one of our own calls: all that they do is write.
type pipe struct {
	r, w    *os.File
	fd      uintptr // where they write, in blocking mode
	stopped chan struct{}
}

// openPipe calls each for one message after the other; the bytes are those of the next one, too.
func openPipe(size int, each func(message []byte)) (*pipe, error) {
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	p := &pipe{r: r, w: w, fd: w.Fd(), stopped: make(chan struct{})}
	go func() {
		defer close(p.stopped)
		message := make([]byte, size)
		for {
			if _, err := io.ReadFull(r, message); err != nil {
				return // the pipe was closed
			}
			each(message)
		}
	}()
	return p, nil
}

// close returns when each runs no more. Nobody may write any more.
func (p *pipe) close() {
	_ = p.w.Close()
	<-p.stopped
	_ = p.r.Close()
}
