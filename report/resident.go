package report

import (
	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/pjrt"
)

// Resident estimates the peak of a program's main memory on a core in bytes, like [Schedule].Peak,
// without the code. It is for a program without a buffer assignment, such as a probe of
// pjrt/worker. Its errors are the errors of [Predict].
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
