package keyvalue

import (
	"bytes"
	"context"
	"fmt"
	"sync"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/pjrt"
)

// The largest key and value, in bytes.
const (
	MaxKey   = 64 << 10
	MaxValue = 64 << 20
)

// Memory is a store in the memory of this process. The zero value is empty and ready. It is safe for
// concurrent use.
type Memory struct {
	mu     sync.Mutex
	values map[string][]byte
	news   chan struct{} // closed when a key gets a value; nil if nobody waits
}

var _ pjrt.KeyValueStore = (*Memory)(nil)

// Get waits until a key has a value, and returns a copy of it.
func (m *Memory) Get(ctx context.Context, key string) ([]byte, error) {
	for {
		m.mu.Lock()
		value, ok := m.values[key]
		if ok {
			value = bytes.Clone(value)
			m.mu.Unlock()
			return value, nil
		}
		if m.news == nil {
			m.news = make(chan struct{})
		}
		news := m.news
		m.mu.Unlock()
		select {
		case <-news:
		case <-ctx.Done():
			return nil, &errkind.Fault{Op: "keyvalue: get", Subject: fmt.Sprintf("%q", key), Reason: "nobody has put it", Err: context.Cause(ctx)}
		}
	}
}

// TryGet returns a copy of the value of a key, or an error that matches [pjrt.NotFound].
func (m *Memory) TryGet(_ context.Context, key string) ([]byte, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	value, ok := m.values[key]
	if !ok {
		return nil, &errkind.Fault{Op: "keyvalue: try to get", Subject: fmt.Sprintf("%q", key), Err: pjrt.NotFound}
	}
	return bytes.Clone(value), nil
}

// Put gives a key a copy of a value, in the place of an earlier one.
func (m *Memory) Put(_ context.Context, key string, value []byte) error {
	if len(key) > MaxKey || len(value) > MaxValue {
		return tooLong(key, value)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.values == nil {
		m.values = map[string][]byte{}
	}
	m.values[key] = bytes.Clone(value)
	if m.news != nil {
		close(m.news)
		m.news = nil
	}
	return nil
}

// tooLong is the error of a key or a value over the limits.
func tooLong(key string, value []byte) error {
	return &errkind.Fault{Op: "keyvalue: put", Reason: fmt.Sprintf("a key of %d bytes and a value of %d bytes, the limits are %d and %d", len(key), len(value), MaxKey, MaxValue), Err: pjrt.InvalidArgument}
}
