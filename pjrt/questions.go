package pjrt

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/pjrt/internal/capi"
)

// questions are what a plugin asks of Go. It asks on threads of its own, and possibly inside one of
// our calls, so its thread only writes the address of the question to a pipe, and waits.
type questions struct {
	subject string // who answers, for errors
	answer  func(capi.Question) ([]byte, error)
	shared  capi.Store
	r, w    *os.File
	stopped chan struct{}
	asked   sync.WaitGroup
}

// answerQuestions starts to answer, each question in a goroutine of its own. A panic of answer is an
// error, and the code of an error reaches the plugin: see codeOf.
func answerQuestions(subject string, answer func(capi.Question) ([]byte, error)) (*questions, error) {
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	q := &questions{subject: subject, answer: answer, r: r, w: w, stopped: make(chan struct{})}
	var ok bool
	if q.shared, ok = capi.NewStore(w.Fd()); !ok {
		return nil, errors.Join(ResourceExhausted, r.Close(), w.Close())
	}
	go q.read()
	return q, nil
}

// close waits for the answers that are under way. Who asks later is refused.
func (q *questions) close() {
	q.shared.Close()
	_ = q.w.Close() // which ends read
	<-q.stopped
	q.asked.Wait()
	_ = q.r.Close()
}

func (q *questions) read() {
	defer close(q.stopped)
	var message [8]byte
	for {
		if _, err := io.ReadFull(q.r, message[:]); err != nil {
			return // the pipe was closed
		}
		address := binary.NativeEndian.Uint64(message[:])
		q.asked.Go(func() {
			value, err := q.guard(capi.ReadQuestion(address))
			if err != nil {
				capi.AnswerQuestion(address, int(codeOf(err)), []byte(err.Error()))
				return
			}
			capi.AnswerQuestion(address, int(OK), value)
		})
	}
}

func (q *questions) guard(question capi.Question) (value []byte, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = &errkind.Fault{Op: "pjrt: " + q.subject, Reason: fmt.Sprintf("it panicked: %v", p), Err: Internal}
		}
	}()
	return q.answer(question)
}

// codeOf is the code by which the plugin learns of an error.
func codeOf(err error) Code {
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
