package strategy

// LargeConstants returns the number of large constants that traces and programs of a strategy use.
func LargeConstants(s *TPUStrategy) int {
	s.constants.mu.Lock()
	defer s.constants.mu.Unlock()
	return len(s.constants.all)
}
