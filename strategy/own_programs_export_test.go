package strategy

import (
	"maps"
	"slices"
)

// OwnPrograms are how many programs the strategy's own functions have, by name.
func OwnPrograms(s *TPUStrategy) map[string]int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := map[string]int{}
	for _, name := range slices.Sorted(maps.Keys(s.builtins)) {
		f := s.builtins[name]
		f.mu.Lock()
		n[name] = len(f.programs)
		f.mu.Unlock()
	}
	return n
}
