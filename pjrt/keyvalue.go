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

// KeyValueStore is where the clients of several processes leave each other notes. All processes of
// a job see the same one; package pjrt/keyvalue has some. Its methods are called from several
// goroutines at once, and return when ctx ends.
//
// An error that matches a [Code] reaches the plugin with that code. So do the errors of contexts,
// as DeadlineExceeded and Cancelled. Others are Unknown.
type KeyValueStore interface {
	// Get waits until a key has a value, and returns it. ctx ends when the plugin waits no longer.
	Get(ctx context.Context, key string) ([]byte, error)
	// TryGet returns the value of a key, or an error that matches [NotFound].
	TryGet(ctx context.Context, key string) ([]byte, error)
	// Put gives a key a value, in the place of an earlier one. The value is the store's.
	Put(ctx context.Context, key string, value []byte) error
}

// keyValues answers a client's questions to its store. The plugin asks on threads of its own, and
// possibly inside one of our calls, so its thread only writes the address of the question to a pipe,
// and waits. A nil keyValues is that of a client without a store.
type keyValues struct {
	store   KeyValueStore
	shared  capi.Store
	r, w    *os.File
	ctx     context.Context
	cancel  context.CancelCauseFunc
	made    func() bool
	stopped chan struct{}
	asked   sync.WaitGroup
}

// serveKeyValues starts to answer. ctx is that of the client's making: when it ends before that, so
// do the questions.
func serveKeyValues(ctx context.Context, store KeyValueStore) (*keyValues, error) {
	if store == nil {
		return nil, nil
	}
	r, w, err := os.Pipe()
	if err != nil {
		return nil, fail("create client", "key-value store", err)
	}
	k := &keyValues{store: store, r: r, w: w, stopped: make(chan struct{})}
	k.ctx, k.cancel = context.WithCancelCause(context.WithoutCancel(ctx))
	k.made = context.AfterFunc(ctx, func() { k.cancel(context.Cause(ctx)) })
	var ok bool
	if k.shared, ok = capi.NewStore(w.Fd()); !ok {
		return nil, errors.Join(fail("create client", "key-value store", ResourceExhausted), r.Close(), w.Close())
	}
	go k.read()
	return k, nil
}

// c is what the plugin gets.
func (k *keyValues) c() capi.Store {
	if k == nil {
		return capi.Store{}
	}
	return k.shared
}

// created says that the client has been made, or not: from now on the questions outlive its making.
func (k *keyValues) created() {
	if k != nil {
		k.made()
	}
}

// close stops answering. What threads ask that the plugin has left behind is refused.
func (k *keyValues) close() {
	if k == nil {
		return
	}
	k.cancel(ErrClosed)
	k.shared.Close()
	_ = k.w.Close() // which ends read
	<-k.stopped
	k.asked.Wait()
	_ = k.r.Close()
}

func (k *keyValues) read() {
	defer close(k.stopped)
	var message [8]byte
	for {
		if _, err := io.ReadFull(k.r, message[:]); err != nil {
			return // the pipe was closed
		}
		address := binary.NativeEndian.Uint64(message[:])
		k.asked.Go(func() {
			value, err := k.answer(capi.ReadQuestion(address))
			if err != nil {
				capi.AnswerQuestion(address, int(codeOf(err)), []byte(err.Error()))
				return
			}
			capi.AnswerQuestion(address, int(OK), value)
		})
	}
}

// answer asks the store.
func (k *keyValues) answer(q capi.Question) (value []byte, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = &errkind.Fault{Op: "pjrt: key-value store", Reason: fmt.Sprintf("it panicked: %v", p), Err: Internal}
		}
	}()
	switch q.Kind {
	case capi.Get:
		ctx, cancel := context.WithTimeout(k.ctx, q.Timeout)
		defer cancel()
		return k.store.Get(ctx, q.Key)
	case capi.TryGet:
		return k.store.TryGet(k.ctx, q.Key)
	default:
		return nil, k.store.Put(k.ctx, q.Key, q.Value)
	}
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
