//go:build unix

package kills

import (
	"context"
	"io"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/storage"
)

const harmedScheme = "harmed"

// faults describes the faults of a store. The zero value has no faults.
type faults struct {
	Seed uint64
	// Fail is the fraction of operations that fail, before or after they take effect.
	Fail float64
	// Slow is the maximum additional time of an operation.
	Slow time.Duration
	// Lie is the fraction of writes of shards that corrupt the data or write nothing, but return
	// success.
	Lie float64
}

// harmed is a store with faults.
type harmed struct {
	storage.Store
	faults faults

	mu     sync.Mutex
	chance *rand.Rand
}

// errHarmed is the error of injected failures. The operation may have taken effect.
var errHarmed = errkind.New(errkind.UnavailableError, "the store has a bad day")

func (h *harmed) below(share float64) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.chance.Float64() < share
}

// slow waits for a random time.
func (h *harmed) slow(ctx context.Context) error {
	if h.faults.Slow == 0 {
		return nil
	}
	h.mu.Lock()
	d := time.Duration(h.chance.Int64N(int64(h.faults.Slow)))
	h.mu.Unlock()
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (h *harmed) Put(ctx context.Context, name string, opts storage.PutOptions, write func(io.Writer) error) error {
	if err := h.slow(ctx); err != nil {
		return err
	}
	if h.below(h.faults.Fail / 2) {
		return errHarmed
	}
	if strings.HasSuffix(name, ".safetensors") && h.below(h.faults.Lie) {
		if h.below(0.5) {
			return nil // nothing is written
		}
		honest := write
		write = func(w io.Writer) error { return honest(&flipped{to: w}) }
	}
	if err := h.Store.Put(ctx, name, opts, write); err != nil {
		return err
	}
	if h.below(h.faults.Fail / 2) {
		return errHarmed // the object is written
	}
	return h.slow(ctx)
}

func (h *harmed) Open(ctx context.Context, name string) (storage.Object, error) {
	if err := h.slow(ctx); err != nil {
		return nil, err
	}
	if h.below(h.faults.Fail / 4) {
		return nil, errHarmed
	}
	return h.Store.Open(ctx, name)
}

func (h *harmed) List(ctx context.Context, prefix string) ([]storage.Info, error) {
	if err := h.slow(ctx); err != nil {
		return nil, err
	}
	if h.below(h.faults.Fail / 4) {
		return nil, errHarmed
	}
	return h.Store.List(ctx, prefix)
}

func (h *harmed) Remove(ctx context.Context, name string) error {
	if h.below(h.faults.Fail / 4) {
		return errHarmed
	}
	return h.Store.Remove(ctx, name)
}

// Sweep lets the underlying store delete the remains of interrupted writes.
func (h *harmed) Sweep(ctx context.Context, prefix string, live func(name string) bool) error {
	if s, ok := h.Store.(storage.Sweeper); ok {
		return s.Sweep(ctx, prefix, live)
	}
	return nil
}

// flipped is a writer that flips a bit of the last byte of each write.
type flipped struct{ to io.Writer }

func (f *flipped) Write(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	other := append([]byte{}, p...)
	other[len(p)-1] ^= 0x40
	return f.to.Write(other)
}
