package gomlx

import (
	"fmt"
	"sync"

	"github.com/gomlx/compute"

	"github.com/tpustrategy/tpustrategy/internal/engine"
	"github.com/tpustrategy/tpustrategy/pjrt"
)

// An execution claims its inputs while it is launched, so that several goroutines can use the same
// buffers. An execution that reads a buffer becomes one of its users, and the buffer is not freed
// until release. An execution to which a buffer is donated owns the buffer: it waits for the users,
// and other executions cannot use the buffer any more, because a result reuses its memory.
//
// An execution first claims its donated inputs and then the others, and does not wait for buffers
// that another execution owns. This avoids deadlocks.

// claim claims the donated inputs as owner and the others as user, until release. After an error
// nothing is claimed. donate has one value per input.
func (e *Executable) claim(inputs []compute.Buffer, donate []bool) error {
	for _, donated := range [...]bool{true, false} {
		for i, input := range inputs {
			if donate[i] != donated {
				continue
			}
			if err := input.(*Buffer).memory.claim(donated); err != nil {
				release(inputs[:i], donate, donated)
				if !donated {
					release(inputs, donate, true)
				}
				return e.input(i, twice(inputs, donate, i, err))
			}
		}
	}
	return nil
}

// release releases the donated inputs, or the other inputs.
func release(inputs []compute.Buffer, donate []bool, donated bool) {
	for i, input := range inputs {
		if donate[i] == donated {
			input.(*Buffer).memory.release(donated)
		}
	}
}

// twice returns the error of input i, whose claim failed with err. If another input is the same
// buffer and donated, the error names that input.
func twice(inputs []compute.Buffer, donate []bool, i int, err error) error {
	h := inputs[i].(*Buffer).memory
	h.mu.Lock()
	gone := h.gone
	h.mu.Unlock()
	if gone != nil {
		return gone
	}
	for k, other := range inputs {
		if k == i || !donate[k] || other.(*Buffer).memory != h {
			continue
		}
		if donate[i] {
			return fmt.Errorf("it is donated twice, also as input %d: give a copy", k)
		}
		return fmt.Errorf("it is donated as input %d: give a copy, or do not donate it", k)
	}
	return err
}

// input adds the number and the name of an input to an error.
func (e *Executable) input(i int, err error) error {
	p := e.state.program
	return fmt.Errorf("input %d, parameter %q: %w", i, p.ParameterNames[i%len(p.ParameterNames)], err)
}

// usable returns an error if the value was freed or is owned by an execution.
func (h *memory) usable() error {
	switch {
	case h.gone != nil:
		return h.gone
	case h.owned:
		return ErrDonated
	}
	return nil
}

// claim registers a user of the value or, if donated, waits for all users and becomes its owner,
// until release.
func (h *memory) claim(donated bool) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if err := h.usable(); err != nil {
		return err
	}
	if !donated {
		h.users++
		return nil
	}
	h.owned = true
	for h.users > 0 {
		if h.idle == nil {
			h.idle = sync.NewCond(&h.mu)
		}
		h.idle.Wait()
	}
	h.owned = h.gone == nil
	return h.gone
}

func (h *memory) release(donated bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if donated {
		h.owned = false
		return
	}
	if h.users--; h.users == 0 && h.idle != nil {
		h.idle.Broadcast()
	}
}

// lay returns a claimed value in a layout, and reshards it if necessary.
func (h *memory) lay(want *engine.Layout) (*placement, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.gone != nil {
		return nil, h.gone
	}
	return h.layLocked(want)
}

// on returns the complete claimed value on a device, and copies it there if necessary.
func (h *memory) on(num compute.DeviceNum) (*pjrt.Buffer, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.gone != nil {
		return nil, h.gone
	}
	whole, err := h.backend.whole(h.shape)
	if err != nil {
		return nil, err
	}
	l := h.onLocked(num, whole)
	if l == nil {
		if l, err = h.aloneLocked(num, whole); err != nil {
			return nil, err
		}
		h.keepLocked(l)
	}
	return l.Buffers[num], nil
}
