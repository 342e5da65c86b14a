package accept

import (
	"fmt"
	"slices"
	"sync"

	"github.com/tpustrategy/tpustrategy/pjrt"
	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/tpu/system"
)

// partRun collects the outcome of one test of an acceptance run. Its methods can be called even
// after the test was abandoned.
type partRun struct {
	session *session
	part    Part

	mu       sync.Mutex
	outcome  Outcome
	finished bool   // finish was called
	activity string // description of the current check
}

// maxEntries limits the number of failures, findings, facts and measurements in an outcome, and
// maxTextBytes limits the length of each text. The limits keep the messages between hosts small.
const (
	maxEntries   = 64
	maxTextBytes = 2000
)

func (w *partRun) appendText(to *[]string, format string, args []any) {
	text := fmt.Sprintf(format, args...)
	if len(text) > maxTextBytes {
		text = text[:maxTextBytes] + " ..."
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case w.finished:
	case len(*to) < maxEntries:
		*to = append(*to, text)
	case len(*to) == maxEntries:
		*to = append(*to, "... and more")
	}
}

// addFailure records a failure. The test continues.
func (w *partRun) addFailure(format string, args ...any) {
	w.appendText(&w.outcome.Failures, format, args)
}

func (w *partRun) addFinding(format string, args ...any) {
	w.appendText(&w.outcome.Findings, format, args)
}

func (w *partRun) addFact(name, format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.finished && len(w.outcome.Facts) < maxEntries {
		value := fmt.Sprintf(format, args...)
		w.outcome.Facts = append(w.outcome.Facts, Fact{name, value[:min(len(value), maxTextBytes)]})
	}
}

// addMeasurement records and returns a measurement. Test hooks can change the measurement.
func (w *partRun) addMeasurement(f Measurement) Measurement {
	if seam := w.session.opts.Hooks.ChangeMeasurement; seam != nil {
		f.Value = seam(w.session.report.Host, w.part.Name, f)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.finished && len(w.outcome.Measurements) < maxEntries {
		w.outcome.Measurements = append(w.outcome.Measurements, f)
	}
	return f
}

// setActivity sets the description of the current check, which becomes part of failures.
func (w *partRun) setActivity(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.activity = fmt.Sprintf(format, args...)
}

// finish returns the outcome of the test. Later calls of other methods have no effect.
func (w *partRun) finish(hung bool) Outcome {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.finished = true
	if hung && w.activity != "" {
		w.outcome.Failures = append(w.outcome.Failures, "it was at "+w.activity)
	}
	switch {
	case hung:
		w.outcome.Status = Hung
	case len(w.outcome.Failures) > 0:
		w.outcome.Status = Failed
	case len(w.outcome.Findings) > 0:
		w.outcome.Status = PassedWithFindings
	default:
		w.outcome.Status = Passed
	}
	return w.outcome
}

func (w *partRun) system() *system.System { return w.session.sys }

func (s *session) deviceIDs() []int { return sortedIDs(s.sys.Topology().DeviceIDs()) }

func sortedIDs(byTask [][]int) []int { return slices.Sorted(slices.Values(slices.Concat(byTask...))) }

func (w *partRun) numDevices() int { return w.system().Topology().NumDevices() }

// newStrategy returns a strategy for the test, which the caller must close.
func (w *partRun) newStrategy(opts strategy.Options) (*strategy.TPUStrategy, error) {
	return strategy.New(w.system(), opts)
}

// compareBytes records a failure if a result differs from the expected bytes.
func (w *partRun) compareBytes(check string, dtype pjrt.DType, got, want []byte) {
	if seam := w.session.opts.Hooks.ChangeResult; seam != nil {
		got = slices.Clone(got)
		seam(w.session.report.Host, w.part.Name, check, got)
	}
	if slices.Equal(got, want) {
		return
	}
	size := max(1, dtype.HostBytes())
	if len(got) != len(want) {
		w.addFailure("%s: %d bytes, and %d are right", check, len(got), len(want))
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
	w.addFailure("%s: %d of %d elements are wrong; element %d is %s, and %s is right", check, wrong, len(want)/size,
		first/size,
		formatElement(dtype, got[first:first+size]), formatElement(dtype, want[first:first+size]))
}
