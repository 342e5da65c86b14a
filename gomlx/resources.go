package gomlx

import (
	"errors"
	"io"
	"slices"
	"strings"
	"sync"
)

// resources is the set of buffers and programs that a backend frees when it is closed. Users or the
// garbage collector may free them earlier; each is closed once. Elements must be comparable. After
// Close, Track and Check return [ErrFinalized]. It is safe for concurrent use.
type resources struct {
	mu       sync.Mutex
	live     map[io.Closer]struct{} // nil once closed
	closeErr error
}

func newResources() *resources { return &resources{live: map[io.Closer]struct{}{}} }

// Track adds r to the set. If the set is closed, it closes r and returns an error.
func (s *resources) Track(r io.Closer) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.live == nil {
		return errors.Join(errBackendFinalized, r.Close())
	}
	s.live[r] = struct{}{}
	return nil
}

// Free removes r from the set and closes it, if it has not been closed before.
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

func (s *resources) Check() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.live == nil {
		return errBackendFinalized
	}
	return nil
}

func (s *resources) Len() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.live)
}

// Close closes all resources and then calls finish with their errors, sorted. It returns the result
// of finish. Later calls return the same result.
func (s *resources) Close(finish func(errs []error) error) error {
	s.mu.Lock()
	live := s.live
	s.live = nil
	closeErr := s.closeErr
	s.mu.Unlock()
	if live == nil {
		return closeErr
	}
	var errs []error
	for r := range live {
		if err := r.Close(); err != nil {
			errs = append(errs, err)
		}
	}
	slices.SortFunc(errs, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) }) // the set has no order
	err := finish(errs)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closeErr = err
	return err
}
