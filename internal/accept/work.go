package accept

import (
	"fmt"
	"slices"
	"sync"

	"github.com/tpustrategy/tpustrategy/pjrt"
	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/tpu/system"
)

// work is a part under way. A part that was left behind may go on to call it.
type work struct {
	session *session
	part    Part

	mu     sync.Mutex
	out    Outcome
	sealed bool   // the outcome is taken
	doing  string // the last check that began
}

// most bounds the lines of one sort in an outcome, and longest each of them: outcomes cross between
// the hosts.
const (
	most    = 64
	longest = 2000
)

func (w *work) add(to *[]string, format string, args []any) {
	text := fmt.Sprintf(format, args...)
	if len(text) > longest {
		text = text[:longest] + " ..."
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case w.sealed:
	case len(*to) < most:
		*to = append(*to, text)
	case len(*to) == most:
		*to = append(*to, "... and more")
	}
}

// fail records something that is wrong, and the part goes on.
func (w *work) fail(format string, args ...any) { w.add(&w.out.Failures, format, args) }

// finding records something that is not as expected.
func (w *work) finding(format string, args ...any) { w.add(&w.out.Findings, format, args) }

// fact records what was read.
func (w *work) fact(name, format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.sealed && len(w.out.Facts) < most {
		value := fmt.Sprintf(format, args...)
		w.out.Facts = append(w.out.Facts, Fact{name, value[:min(len(value), longest)]})
	}
}

// figure records what was measured, and returns it.
func (w *work) figure(f Figure) Figure {
	if seam := w.session.opts.Seams.Figure; seam != nil {
		f.Value = seam(w.session.report.Host, w.part.Name, f)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.sealed && len(w.out.Figures) < most {
		w.out.Figures = append(w.out.Figures, f)
	}
	return f
}

// at names the check that begins.
func (w *work) at(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.doing = fmt.Sprintf(format, args...)
}

// result takes the outcome; what a part that was left behind adds later is lost.
func (w *work) result(hung bool) Outcome {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.sealed = true
	if hung && w.doing != "" {
		w.out.Failures = append(w.out.Failures, "it was at "+w.doing)
	}
	switch {
	case hung:
		w.out.Status = Hung
	case len(w.out.Failures) > 0:
		w.out.Status = Failed
	case len(w.out.Findings) > 0:
		w.out.Status = Found
	default:
		w.out.Status = Passed
	}
	return w.out
}

func (w *work) sys() *system.System { return w.session.sys }

// devices are the ids of all devices, ascending.
func (s *session) devices() []int { return deviceIDs(s.sys.Topology().DeviceIDs()) }

func deviceIDs(byTask [][]int) []int { return slices.Sorted(slices.Values(slices.Concat(byTask...))) }

// n is the number of devices.
func (w *work) n() int { return w.sys().Topology().NumDevices() }

// strategy opens a strategy for a part. The caller closes it.
func (w *work) strategy(opts strategy.Options) (*strategy.TPUStrategy, error) {
	return strategy.New(w.sys(), opts)
}

// exactly holds an answer against the right one.
func (w *work) exactly(check string, dtype pjrt.DType, got, want []byte) {
	if seam := w.session.opts.Seams.Answer; seam != nil {
		got = slices.Clone(got)
		seam(w.session.report.Host, w.part.Name, check, got)
	}
	if slices.Equal(got, want) {
		return
	}
	size := max(1, dtype.HostBytes())
	if len(got) != len(want) {
		w.fail("%s: %d bytes, and %d are right", check, len(got), len(want))
		return
	}
	wrong, first := 0, -1
	for i := 0; i+size <= len(got); i += size {
		if !slices.Equal(got[i:i+size], want[i:i+size]) {
			if wrong++; first < 0 {
				first = i
			}
		}
	}
	w.fail("%s: %d of %d elements are wrong; element %d is %s, and %s is right", check, wrong, len(want)/size, first/size,
		text(dtype, got[first:first+size]), text(dtype, want[first:first+size]))
}
