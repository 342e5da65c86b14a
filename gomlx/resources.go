package gomlx

import (
	"errors"
	"io"
	"slices"
	"strings"
	"sync"
)

// resources are what an object has to free at its end, buffers and programs, and what its users, or
// the garbage collector, may free before, each once. They are pointers. After its Close the other calls
// answer with [ErrFinalized]. It is safe for concurrent use.
type resources struct {
	mu     sync.Mutex
	live   map[io.Closer]struct{} // nil once closed
	closed error
}

func newResources() *resources { return &resources{live: map[io.Closer]struct{}{}} }

// Track takes charge of r, unless the set is closed: then r is closed at once.
func (s *resources) Track(r io.Closer) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.live == nil {
		return errors.Join(ErrFinalized, r.Close())
	}
	s.live[r] = struct{}{}
	return nil
}

// Free closes r, if that was not done before.
func (s *resources) Free(r io.Closer) error {
	s.mu.Lock()
	_, ok := s.live[r]
	delete(s.live, r)
	s.mu.Unlock()
	if !ok {
		return nil
	}
	return r.Close()
}

// Check answers whether the set is closed.
func (s *resources) Check() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.live == nil {
		return ErrFinalized
	}
	return nil
}

// Len returns the number of resources that are not freed.
func (s *resources) Len() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.live)
}

// Close closes all resources and then calls end with the errors of that, in an order of their own.
// It returns what end makes of them; so does every later Close, which does nothing else.
func (s *resources) Close(end func(errs []error) error) error {
	s.mu.Lock()
	live := s.live
	s.live = nil
	closed := s.closed
	s.mu.Unlock()
	if live == nil {
		return closed
	}
	var errs []error
	for r := range live {
		if err := r.Close(); err != nil {
			errs = append(errs, err)
		}
	}
	slices.SortFunc(errs, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) }) // the set has no order
	err := end(errs)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = err
	return err
}
