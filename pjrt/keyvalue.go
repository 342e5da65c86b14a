package pjrt

import (
	"context"

	"github.com/tpustrategy/tpustrategy/pjrt/internal/capi"
)

// KeyValueStore is a key-value store that the clients of all processes of a job share. Package
// pjrt/keyvalue provides implementations. Methods are called concurrently, and must return when ctx
// ends.
//
// If an error matches a [Code], the plugin receives this code. For an ended context, the plugin
// receives the code of a canceled call or DeadlineExceeded, and for all other errors Unknown.
type KeyValueStore interface {
	// Get waits until the key has a value and returns the value. ctx ends when the plugin's timeout
	// has elapsed.
	Get(ctx context.Context, key string) ([]byte, error)
	// TryGet returns the value of a key, or an error that matches [NotFound].
	TryGet(ctx context.Context, key string) ([]byte, error)
	// Put sets the value of a key. The store may retain value.
	Put(ctx context.Context, key string, value []byte) error
}

// keyValueServer handles a plugin's requests to a KeyValueStore. All methods except handleRequest
// accept a nil receiver, which means that there is no store.
type keyValueServer struct {
	*callbackServer
	store  KeyValueStore
	ctx    context.Context
	cancel context.CancelCauseFunc
	// detach stops the cancellation of ctx by the context of NewClient.
	detach func() bool
}

// serveKeyValues starts a server for the requests of a plugin, or returns nil if store is nil. The
// requests are canceled when ctx ends, until detachContext is called.
func serveKeyValues(ctx context.Context, store KeyValueStore) (*keyValueServer, error) {
	if store == nil {
		return nil, nil
	}
	k := &keyValueServer{store: store}
	k.ctx, k.cancel = context.WithCancelCause(context.WithoutCancel(ctx))
	k.detach = context.AfterFunc(ctx, func() { k.cancel(context.Cause(ctx)) })
	var err error
	k.callbackServer, err = serveCallbacks("key-value store", k.handleRequest)
	return k, wrapError("create client", "key-value store", err)
}

// requestPipe returns the pipe of the key-value requests, which a new client of the plugin receives.
func (k *keyValueServer) requestPipe() capi.RequestPipe {
	if k == nil {
		return capi.RequestPipe{}
	}
	return k.requests
}

// detachContext makes the requests independent of the context of NewClient. It must be called when
// NewClient has created the client or has failed.
func (k *keyValueServer) detachContext() {
	if k != nil {
		k.detach()
	}
}

// close cancels running requests. Later requests are rejected.
func (k *keyValueServer) close() {
	if k == nil {
		return
	}
	k.cancel(errClientClosed)
	k.callbackServer.close()
}

func (k *keyValueServer) handleRequest(q capi.Request) ([]byte, error) {
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
