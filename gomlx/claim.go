package gomlx

import (
	"fmt"
	"sync"

	"github.com/gomlx/compute"

	"github.com/tpustrategy/tpustrategy/internal/engine"
	"github.com/tpustrategy/tpustrategy/pjrt"
)

// An execution claims its inputs while it is launched, so that several goroutines can use the same
// buffers. An execution that reads a buffer becomes one of its readers, and the buffer is not freed
// until release. An execution to which a buffer is donated owns the buffer: it waits for the
// readers, and other executions cannot use the buffer any more, because a result reuses its memory.
//
// An execution first claims its donated inputs and then the others, and does not wait for buffers
// that another execution owns. This avoids deadlocks.

// claim registers the execution as the owner of its donated inputs and as a reader of its other
// inputs, until releaseInputs is called. donate[i] is true if input i is donated. If claim fails,
// it registers nothing.
func (e *Executable) claim(inputs []compute.Buffer, donate []bool) error {
	for _, donated := range [...]bool{true, false} {
		for i, input := range inputs {
			if donate[i] != donated {
				continue
			}
			if err := input.(*Buffer).state.claim(donated); err != nil {
				releaseInputs(inputs[:i], donate, donated)
				if !donated {
					releaseInputs(inputs, donate, true)
				}
				return e.inputError(i, claimError(inputs, donate, i, err))
			}
		}
	}
	return nil
}

func releaseInputs(inputs []compute.Buffer, donate []bool, donated bool) {
	for i, input := range inputs {
		if donate[i] == donated {
			input.(*Buffer).state.release(donated)
		}
	}
}

// claimError returns the error for input i, whose claim failed with err. If another input is the
// same buffer and is donated, the error names that input.
func claimError(inputs []compute.Buffer, donate []bool, i int, err error) error {
	s := inputs[i].(*Buffer).state
	s.mu.Lock()
	freedErr := s.freedErr
	s.mu.Unlock()
	if freedErr != nil {
		return freedErr
	}
	for j, other := range inputs {
		if j == i || !donate[j] || other.(*Buffer).state != s {
			continue
		}
		if donate[i] {
			return fmt.Errorf("it is donated twice, also as input %d: pass a copy", j)
		}
		return fmt.Errorf("it is donated as input %d: pass a copy, or do not donate it", j)
	}
	return err
}

func (e *Executable) inputError(i int, err error) error {
	p := e.state.program
	return fmt.Errorf("input %d, parameter %q: %w", i, p.ParameterNames[i%len(p.ParameterNames)], err)
}

// checkUsable returns an error if the value was freed, or if it was donated to an execution that is
// being launched.
func (s *bufferState) checkUsable() error {
	switch {
	case s.freedErr != nil:
		return s.freedErr
	case s.isDonating:
		return ErrDonated
	}
	return nil
}

// claim registers an execution as a reader of the buffer. If donated is true, it waits for all
// readers and registers the execution as the owner instead, to which the buffer is donated. It
// fails if the buffer was freed or has an owner.
func (s *bufferState) claim(donated bool) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.checkUsable(); err != nil {
		return err
	}
	if !donated {
		s.readers++
		return nil
	}
	s.isDonating = true
	for s.readers > 0 {
		if s.noReaders == nil {
			s.noReaders = sync.NewCond(&s.mu)
		}
		s.noReaders.Wait()
	}
	s.isDonating = s.freedErr == nil
	return s.freedErr
}

func (s *bufferState) release(donated bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if donated {
		s.isDonating = false
		return
	}
	if s.readers--; s.readers == 0 && s.noReaders != nil {
		s.noReaders.Broadcast()
	}
}

// reshard returns the value in the given layout. The execution must have claimed the value.
func (s *bufferState) reshard(layout *engine.Layout) (*placement, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.freedErr != nil {
		return nil, s.freedErr
	}
	return s.reshardLocked(layout)
}

// valueOnDevice returns the complete value on a device, and copies it there if necessary. The
// execution must have claimed the value.
func (s *bufferState) valueOnDevice(num compute.DeviceNum) (*pjrt.Buffer, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.freedErr != nil {
		return nil, s.freedErr
	}
	replicated, err := s.backend.replicatedLayout(s.shape)
	if err != nil {
		return nil, err
	}
	p := s.findOnDeviceLocked(num, replicated)
	if p == nil {
		if p, err = s.copyToDeviceLocked(num, replicated); err != nil {
			return nil, err
		}
		s.addPlacementLocked(p)
	}
	return p.Buffers[num], nil
}
