package pjrt

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/pjrt/internal/capi"
)

// callbackServer calls Go functions for a plugin. A plugin thread writes the address of its request
// to a pipe and waits for the reply.
type callbackServer struct {
	subject  string // name of the handler in errors
	handler  func(capi.Request) ([]byte, error)
	requests capi.RequestPipe
	pipe     *pipe // transfers the addresses of requests
	running  sync.WaitGroup
}

// serveCallbacks starts a server that calls handler for each request, in a new goroutine. If
// handler fails or panics, the plugin receives the code returned by errorCode. subject is the name
// of the handler in error messages.
func serveCallbacks(subject string, handler func(capi.Request) ([]byte, error)) (*callbackServer, error) {
	s := &callbackServer{subject: subject, handler: handler}
	var err error
	if s.pipe, err = openPipe(8, func(message []byte) {
		address := binary.NativeEndian.Uint64(message)
		s.running.Go(func() { s.reply(address) })
	}); err != nil {
		return nil, err
	}
	var ok bool
	if s.requests, ok = capi.NewRequestPipe(s.pipe.writeFD); !ok {
		s.pipe.close()
		return nil, ResourceExhausted
	}
	return s, nil
}

// close waits for running requests. Later requests are rejected.
func (s *callbackServer) close() {
	s.requests.Close()
	s.pipe.close()
	s.running.Wait()
}

func (s *callbackServer) reply(address uint64) {
	value, err := s.callHandler(capi.ReadRequest(address))
	if err != nil {
		capi.Reply(address, int(errorCode(err)), []byte(err.Error()))
		return
	}
	capi.Reply(address, int(OK), value)
}

func (s *callbackServer) callHandler(request capi.Request) (value []byte, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = &errkind.Fault{Op: "pjrt: " + s.subject, Reason: fmt.Sprintf("it panicked: %v", p), Err: Internal}
		}
	}()
	return s.handler(request)
}

// errorCode converts an error of a handler to the code that is sent to the plugin.
func errorCode(err error) Code {
	var code Code
	switch {
	case errors.As(err, &code) && code != OK:
		return code
	case errors.Is(err, context.DeadlineExceeded):
		return DeadlineExceeded
	case errors.Is(err, context.Canceled), errors.Is(err, ErrClosed):
		return Cancelled
	}
	return Unknown
}
