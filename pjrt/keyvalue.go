package pjrt

import (
	"context"

	"github.com/tpustrategy/tpustrategy/pjrt/internal/capi"
)

// KeyValueStore is where the clients of several processes leave each other notes. All processes of
// a job see the same one; package pjrt/keyvalue has some. Its methods are called from several
// goroutines at once, and return when ctx ends.
//
// An error that matches a [Code] reaches the plugin with that code. So do the errors of contexts,
// as DeadlineExceeded and Canceled. Others are Unknown.
type KeyValueStore interface {
	// Get waits until a key has a value, and returns it. ctx ends when the plugin waits no longer.
	Get(ctx context.Context, key string) ([]byte, error)
	// TryGet returns the value of a key, or an error that matches [NotFound].
	TryGet(ctx context.Context, key string) ([]byte, error)
	// Put gives a key a value, in the place of an earlier one. The value is the store's.
	Put(ctx context.Context, key string, value []byte) error
}

// keyValues answers a client's questions to its store. A nil keyValues is that of a client without a
// store.
type keyValues struct {
	*questions
	store  KeyValueStore
	ctx    context.Context
	cancel context.CancelCauseFunc
	made   func() bool
}

// serveKeyValues starts to answer. ctx is that of the client's making: when it ends before that, so
// do the questions.
func serveKeyValues(ctx context.Context, store KeyValueStore) (*keyValues, error) {
	if store == nil {
		return nil, nil
	}
	k := &keyValues{store: store}
	k.ctx, k.cancel = context.WithCancelCause(context.WithoutCancel(ctx))
	k.made = context.AfterFunc(ctx, func() { k.cancel(context.Cause(ctx)) })
	var err error
	k.questions, err = answerQuestions("key-value store", k.answer)
	return k, wrap("create client", "key-value store", err)
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
	k.questions.close()
}

// answer asks the store.
func (k *keyValues) answer(q capi.Question) ([]byte, error) {
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
