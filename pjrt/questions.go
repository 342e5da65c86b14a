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

// questions are what a plugin asks of Go. The thread that asks writes the address of its question to a
// pipe, and waits.
type questions struct {
	subject string // who answers, for errors
	answer  func(capi.Question) ([]byte, error)
	shared  capi.Store
	pipe    *pipe // of their addresses
	asked   sync.WaitGroup
}

// answerQuestions starts to answer, each question in a goroutine of its own. A panic of answer is an
// error, and the code of an error reaches the plugin: see codeOf.
func answerQuestions(subject string, answer func(capi.Question) ([]byte, error)) (*questions, error) {
	q := &questions{subject: subject, answer: answer}
	var err error
	if q.pipe, err = openPipe(8, func(message []byte) {
		address := binary.NativeEndian.Uint64(message)
		q.asked.Go(func() { q.reply(address) })
	}); err != nil {
		return nil, err
	}
	var ok bool
	if q.shared, ok = capi.NewStore(q.pipe.fd); !ok {
		q.pipe.close()
		return nil, ResourceExhausted
	}
	return q, nil
}

// close waits for the answers that are under way. Who asks later is refused.
func (q *questions) close() {
	q.shared.Close()
	q.pipe.close()
	q.asked.Wait()
}

func (q *questions) reply(address uint64) {
	value, err := q.guard(capi.ReadQuestion(address))
	if err != nil {
		capi.AnswerQuestion(address, int(codeOf(err)), []byte(err.Error()))
		return
	}
	capi.AnswerQuestion(address, int(OK), value)
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
