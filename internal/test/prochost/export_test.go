package prochost

import "bytes"

// Compiled returns the number of programs in the machine's cache.
func (m *Machine) Compiled() int {
	m.keeping.mu.Lock()
	defer m.keeping.mu.Unlock()
	return len(m.keeping.programs)
}

// ReadAll reads frames from b and splits their bodies, until a frame is invalid.
func ReadAll(b []byte, limit int64) {
	for r := bytes.NewReader(b); ; {
		var q request
		body, err := readFrame(r, &q, limit)
		if err != nil {
			return
		}
		if q.Launch != nil {
			_, _ = split(body, 2, q.Launch.Arguments)
		}
		if q.Program != nil {
			_, _ = q.Program.options()
		}
	}
}
