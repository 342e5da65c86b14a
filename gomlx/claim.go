package gomlx

import (
	"fmt"
	"sync"

	"github.com/gomlx/compute"

	"github.com/tpustrategy/tpustrategy/internal/mesh"
	"github.com/tpustrategy/tpustrategy/pjrt"
)

// An execution claims its inputs while it is being launched, so that other goroutines can use the
// same buffers. One that only reads counts as a user: what it is about to launch with stays. One
// that a buffer is donated to owns it: it waits for the users, and nobody else can use the buffer
// from then on, because its memory is filled with a result.
//
// An execution owns before it uses, and does not wait when what it wants to use is owned, so none
// waits for another in a circle.

// claim takes the donated inputs and becomes a user of the others, until release. After an error nothing
// is claimed. donate has a value for each input.
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

// release ends what claim began, of the inputs that are donated or of the others.
func release(inputs []compute.Buffer, donate []bool, donated bool) {
	for i, input := range inputs {
		if donate[i] == donated {
			input.(*Buffer).memory.release(donated)
		}
	}
}

// twice is the error of input i: another one is the same buffer, if the buffer is there at all.
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

// input names the input that an error is about.
func (e *Executable) input(i int, err error) error {
	p := e.state.program
	return fmt.Errorf("input %d, parameter %q: %w", i, p.ParameterNames[i%len(p.ParameterNames)], err)
}

// usable answers why the value cannot be used, if so.
func (h *memory) usable() error {
	switch {
	case h.gone != nil:
		return h.gone
	case h.owned:
		return ErrDonated
	}
	return nil
}

// claim becomes a user of the value, or waits for the users and makes it that of one execution, until
// release.
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

// lay brings a value that is claimed into a layout, if it is not in it, and returns its parts.
func (h *memory) lay(want *mesh.Layout) (*placement, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.gone != nil {
		return nil, h.gone
	}
	return h.layLocked(want)
}

// on brings a value that is claimed to a device, if it is not whole there, and returns it there.
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
