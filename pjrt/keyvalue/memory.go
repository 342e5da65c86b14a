package keyvalue

import (
	"bytes"
	"context"
	"fmt"
	"sync"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/pjrt"
)

// MaxKeyBytes and MaxValueBytes are the maximum sizes of keys and values, in bytes.
const (
	MaxKeyBytes   = 64 << 10
	MaxValueBytes = 64 << 20
)

// Memory is a key-value store in the memory of this process. The zero value is an empty store. It
// is safe for concurrent use.
type Memory struct {
	mu      sync.Mutex
	values  map[string][]byte
	changed chan struct{} // closed when a key is set; nil if no Get waits
}

var _ pjrt.KeyValueStore = (*Memory)(nil)

// Get waits until the key has a value, and returns a copy of the value.
func (m *Memory) Get(ctx context.Context, key string) ([]byte, error) {
	for {
		m.mu.Lock()
		value, ok := m.values[key]
		if ok {
			value = bytes.Clone(value)
			m.mu.Unlock()
			return value, nil
		}
		if m.changed == nil {
			m.changed = make(chan struct{})
		}
		changed := m.changed
		m.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, &errkind.Fault{Op: "keyvalue: get", Subject: fmt.Sprintf("%q", key), Reason: "it has no value",
				Err: context.Cause(ctx)}
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

// Put sets the value of a key to a copy of value.
func (m *Memory) Put(_ context.Context, key string, value []byte) error {
	if len(key) > MaxKeyBytes || len(value) > MaxValueBytes {
		return sizeError(key, value)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.values == nil {
		m.values = map[string][]byte{}
	}
	m.values[key] = bytes.Clone(value)
	if m.changed != nil {
		close(m.changed)
		m.changed = nil
	}
	return nil
}

func sizeError(key string, value []byte) error {
	return &errkind.Fault{Op: "keyvalue: put", Err: pjrt.InvalidArgument,
		Reason: fmt.Sprintf("the key has %d bytes and the value %d, but the limits are %d and %d", len(key), len(value),
			MaxKeyBytes, MaxValueBytes)}
}
