package gomlx

import (
	"context"
	"errors"
	"sync"

	"github.com/gomlx/compute"

	"github.com/tpustrategy/tpustrategy/lowering"
	"github.com/tpustrategy/tpustrategy/tpu/system"
)

// hostPrograms runs programs on a CPU device of this machine, which it opens on first use.
type hostPrograms struct {
	ctx  context.Context // of the backend that compiles ahead of time
	opts Options
	once sync.Once
	cpu  *Backend
	err  error
}

func (h *hostPrograms) openCPU() (*Backend, error) {
	h.once.Do(func() {
		if h.cpu, h.err = newCPUBackend(h.ctx, h.opts); h.err != nil {
			h.err = wrapError("run on this machine", "a program that runs before the compiled step", h.err)
		}
	})
	return h.cpu, h.err
}

func newCPUBackend(ctx context.Context, opts Options) (*Backend, error) {
	sys, err := system.Open(ctx, system.Options{CPUDevices: 1})
	if err != nil {
		return nil, err
	}
	b, err := newBackend(ctx, sys, opts)
	if err != nil {
		return nil, errors.Join(err, sys.Close())
	}
	b.closers = append(b.closers, sys.Close)
	return b, nil
}

// Close frees the CPU device. Programs that have not run yet then fail with ErrFinalized.
func (h *hostPrograms) Close() error {
	h.once.Do(func() { h.err = errBackendFinalized })
	if h.cpu == nil {
		return nil
	}
	return h.cpu.Close()
}

// lazyBytes returns the bytes of a tensor in host memory, which must not be modified. If the tensor
// is not computed yet, lazyBytes first executes the programs that compute it.
type lazyBytes func() ([]byte, error)

// lazyResults returns one function for each result of p. The program, and the programs that compute
// its inputs, are executed when the first of these functions is called.
func (h *hostPrograms) lazyResults(p *lowering.Program, inputs []lazyBytes) []lazyBytes {
	execute := sync.OnceValues(func() ([][]byte, error) {
		defer func() { inputs = nil }() // inputs may be large
		backend, err := h.openCPU()
		if err != nil {
			return nil, err
		}
		return backend.executeOnHost(p, inputs)
	})
	out := make([]lazyBytes, len(p.Outputs))
	for r := range out {
		out[r] = func() ([]byte, error) {
			results, err := execute()
			if err != nil {
				return nil, err
			}
			return results[r], nil
		}
	}
	return out
}

// executeOnHost executes a program of another backend on host values.
func (b *Backend) executeOnHost(p *lowering.Program, values []lazyBytes) ([][]byte, error) {
	exe, err := b.compile(p)
	if err != nil {
		return nil, err
	}
	defer exe.Finalize()
	var inputs []compute.Buffer
	for i, value := range values {
		tensor, err := value()
		if err != nil {
			return nil, err
		}
		buf, err := b.newBuffer(&bufferState{backend: b, shape: p.Parameters[i], host: tensor})
		if err != nil {
			return nil, err
		}
		defer func() { _ = buf.Finalize() }()
		inputs = append(inputs, buf)
	}
	results, err := exe.Execute(inputs, nil, 0)
	if err != nil {
		return nil, err
	}
	out := make([][]byte, len(results))
	for i, result := range results {
		buf := result.(*Buffer)
		buf.state.mu.Lock()
		out[i], err = buf.state.bytesLocked()
		buf.state.mu.Unlock()
		if err != nil {
			return nil, err
		}
		_ = buf.Finalize()
	}
	return out, nil
}
