package faultproxy

import (
	"maps"
	"net"
	"net/http"
	"slices"
	"strconv"
	"time"
)

// pause is the wait between two pieces of a slow response, and pieces is the number of pieces.
const (
	pause  = 20 * time.Millisecond
	pieces = 8
)

// give sends a response to the client and injects the fault f into it.
func give(w http.ResponseWriter, r *http.Request, a *answer, f Fault) {
	if f == LoseAnswer {
		reset(w)
		return
	}
	body := a.body
	if f == Stall && len(body) == 0 {
		<-r.Context().Done()
		return
	}
	maps.Copy(w.Header(), a.header)
	switch f {
	case FlipAnswer:
		if len(body) > 0 {
			body = slices.Clone(body)
			body[len(body)*3/4] ^= 0x10
		}
	case ShortAnswer:
		body = body[:len(body)/2]
	}
	if r.Method != http.MethodHead {
		w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	}
	w.WriteHeader(a.status)
	if r.Method == http.MethodHead {
		return
	}
	switch f {
	case CutAnswer:
		_, _ = w.Write(body[:len(body)/2])
		reset(w)
	case Stall:
		_, _ = w.Write(body[:len(body)/2])
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	case Slow:
		for piece := range slices.Chunk(body, len(body)/pieces+1) {
			if _, err := w.Write(piece); err != nil {
				return
			}
			_ = http.NewResponseController(w).Flush()
			select {
			case <-r.Context().Done():
				return
			case <-time.After(pause):
			}
		}
	default:
		_, _ = w.Write(body)
	}
}

// reset resets the connection of a request, so that the client receives "connection reset".
func reset(w http.ResponseWriter) {
	c := http.NewResponseController(w)
	conn, _, err := c.Hijack()
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	if tcp, ok := conn.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	_ = conn.Close()
}
