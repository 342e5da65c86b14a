package report

import (
	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/pjrt"
)

// Resident estimates the main memory of a core that a program takes at its peak, in bytes, as
// [Schedule].Peak. It is for a program of which the compiler has not assigned the memory yet, such as a
// probe of pjrt/worker, and leaves out the code. Errors are those of [Predict].
func Resident(program pjrt.Program, kernels ...Kernel) (int64, error) {
	m, err := parseProgram(program)
	if err != nil {
		return 0, err
	}
	for _, k := range kernels {
		k.keep(m)
	}
	_, w := m.worked(Target{}, false, nil)
	return m.resident(w)
}

func (m *hloModule) resident(w *worker) (int64, error) {
	l := &lives{module: m, worker: w, layers: func(int) string { return "" }}
	if !w.cut {
		l.program()
	}
	if w.cut || l.cut || l.count == 0 {
		return 0, &errkind.Fault{Op: "report: resident", Match: ErrProgram, Reason: "it is empty, or too large to be laid out in its order"}
	}
	bytes, peak := l.inUse()
	return bytes[peak], nil
}
