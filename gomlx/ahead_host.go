package gomlx

import (
	"context"
	"errors"
	"sync"

	"github.com/gomlx/compute"

	"github.com/tpustrategy/tpustrategy/lowering"
	"github.com/tpustrategy/tpustrategy/lowering/spmd"
	"github.com/tpustrategy/tpustrategy/tpu/system"
)

// hostPrograms runs programs on a CPU device of this machine, which it opens when it is needed.
type hostPrograms struct {
	life context.Context // of the backend that compiles ahead of time
	opts Options
	once sync.Once
	on   *Backend
	err  error
}

// backend returns the backend of the CPU device.
func (h *hostPrograms) backend() (*Backend, error) {
	h.once.Do(func() {
		if h.on, h.err = onCPU(h.life, h.opts); h.err != nil {
			h.err = failed("run on this machine", "what a program gives that runs before the one to compile", h.err)
		}
	})
	return h.on, h.err
}

// onCPU returns a backend of one CPU device of its own.
func onCPU(life context.Context, opts Options) (*Backend, error) {
	sys, err := system.Open(life, system.Options{CPUDevices: 1})
	if err != nil {
		return nil, err
	}
	b, err := newOn(life, sys, opts)
	if err != nil {
		return nil, errors.Join(err, sys.Close())
	}
	b.owned = append(b.owned, sys.Close)
	return b, nil
}

// Close frees the CPU device. A program that is to be run later is refused.
func (h *hostPrograms) Close() error {
	h.once.Do(func() { h.err = ErrFinalized })
	if h.on == nil {
		return nil
	}
	return h.on.Close()
}

// hostRun is an execution of a program that has no data or no variables. It happens when one of its
// results is read.
type hostRun struct {
	of      *hostPrograms
	program *lowering.Program
	inputs  []hostValue

	once    sync.Once
	results [][]byte
	err     error
}

// hostValue is a tensor in host memory, or one that an execution gives later.
type hostValue struct {
	bytes []byte
	later *later
}

// later is a result of an execution.
type later struct {
	run    *hostRun
	result int
}

// bytes returns the tensor, which must not be written.
func (v hostValue) get() ([]byte, error) {
	if v.later == nil {
		return v.bytes, nil
	}
	return v.later.get()
}

func (l *later) get() ([]byte, error) {
	l.run.once.Do(l.run.run)
	if l.run.err != nil {
		return nil, l.run.err
	}
	return l.run.results[l.result], nil
}

// run executes the program, and all programs before it that it needs.
func (r *hostRun) run() {
	on, err := r.of.backend()
	if err != nil {
		r.err = err
		return
	}
	r.results, r.err = r.execute(on)
	r.inputs = nil // which may be large
}

func (r *hostRun) execute(on *Backend) ([][]byte, error) {
	p, err := spmd.Unmarked(r.program)
	if err != nil {
		return nil, err
	}
	exe, err := on.compile(p)
	if err != nil {
		return nil, err
	}
	defer exe.Finalize()
	var inputs []compute.Buffer
	for i, v := range r.inputs {
		tensor, err := v.get()
		if err != nil {
			return nil, err
		}
		buf, err := on.newBuffer(&memory{backend: on, shape: r.program.Parameters[i], host: tensor})
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
		buf.memory.mu.Lock()
		out[i], err = buf.memory.bytes()
		buf.memory.mu.Unlock()
		if err != nil {
			return nil, err
		}
		_ = buf.Finalize()
	}
	return out, nil
}
