package strategy

import (
	"maps"
	"slices"
)

// OwnPrograms returns the number of the strategy's internal programs, by name.
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
