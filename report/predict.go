package report

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/pjrt"
)

// Prediction is the time that one run of a program should take on its slice, by what takes it. It
// knows the program, the chips and the links, and nothing of input, hosts, launches and waiting for
// other processes. It has been held against published measurements of single operations; see
// docs/ahead-of-time.md. It is no measurement and, unlike the roofline, no bound.
type Prediction struct {
	// Seconds is the sum of Products, Memory and the exposed parts of Interconnect and Network.
	Seconds float64 `json:"seconds"`
	// Products are the operations with matrix products and convolutions: the compiler's estimate of
	// cycles over the clock where there is one, and otherwise the padded product at the share of the
	// peak that compiled programs show.
	Products float64 `json:"products_seconds"`
	// Memory are all other operations of a core, each at the rate of the main memory. Those that touch
	// fast memory alone take the compiler's cycles.
	Memory float64 `json:"memory_seconds"`
	// Interconnect are the collectives inside slices, by kind, bytes, group and links, and Network
	// those between slices.
	Interconnect Overlap `json:"interconnect"`
	Network      Overlap `json:"network"`
	// Closed is the part of Products whose operations have no cycles of the compiler.
	Closed float64 `json:"products_without_cycles_seconds,omitempty"`
	// Utilization is the number of operations in the step's matrix products and convolutions as it was
	// written, divided by what all cores can do at their published peak in Seconds. [Predict] leaves it
	// 0, as a program does not say what was written.
	Utilization float64 `json:"model_flops_utilization,omitempty"`
	// Unknown are the operations whose time is not known and that count as none, most frequent first.
	Unknown []UnknownTime `json:"unknown,omitempty"`
	// Constants are the figures that the prediction rests on.
	Constants []Constant `json:"constants"`
}

// Overlap is the time of collectives: Exposed while a core waits, and Hidden behind other
// operations, as the program is scheduled. Both are in seconds.
type Overlap struct {
	Exposed float64 `json:"exposed_seconds"`
	Hidden  float64 `json:"hidden_seconds"`
}

// UnknownTime is operations of one sort that a prediction has no time for.
type UnknownTime struct {
	Operation string `json:"operation"`
	// Count is how often one core runs them in a step.
	Count int `json:"count"`
}

// Predict returns the time of a program on the slice that target names, such as "v5p:4x4x4" or
// "2x v6e-256". The program is one that the compiler has finished, or one that it has split and not
// yet scheduled. Predict needs no client and no plugin. Errors match [ErrProgram] for a program that
// cannot be read, and errors.ErrUnsupported for another form of program and for devices that are no
// TPUs.
func Predict(program pjrt.Program, target string) (*Prediction, error) {
	m, err := parseProgram(program)
	if err != nil {
		return nil, err
	}
	slice, ok := newMachine(target)
	if !ok {
		return nil, notTPU(target)
	}
	w := m.work(Target{}, false, slice)
	if w.cut {
		return nil, &errkind.Fault{Op: "report: predict", Match: ErrProgram, Reason: "it is too large to be counted to its end"}
	}
	return slice.prediction(w.times), nil
}

// times is what a part of a program takes; see Prediction.
type times struct {
	products, closed, memory float64
	interconnect, network    Overlap
	unknown                  map[string]float64
}

// seconds is what a core is kept for.
func (t times) seconds() float64 {
	return t.products + t.memory + t.interconnect.Exposed + t.network.Exposed
}

// longest is more seconds than any step takes: what a damaged program can make of a figure.
const longest = 1e15

// bounded is a time or a count that is a number.
func bounded(x float64) float64 {
	if !(x < longest) {
		return longest
	}
	return x
}

func (t *times) add(o times, n float64) {
	t.products = bounded(t.products + n*o.products)
	t.closed = bounded(t.closed + n*o.closed)
	t.memory = bounded(t.memory + n*o.memory)
	t.interconnect.add(o.interconnect, n)
	t.network.add(o.network, n)
	for what, count := range o.unknown {
		if n > 0 {
			t.missing(what, n*count)
		}
	}
}

// longer is the one that keeps a core for longer.
func longer(a, b times) times {
	if a.seconds() >= b.seconds() {
		return a
	}
	return b
}

func (o *Overlap) add(x Overlap, n float64) {
	o.Exposed = bounded(o.Exposed + n*x.Exposed)
	o.Hidden = bounded(o.Hidden + n*x.Hidden)
}

// missing notes operations whose time is not known.
func (t *times) missing(what string, n float64) {
	if t.unknown == nil {
		t.unknown = map[string]float64{}
	}
	t.unknown[what] = bounded(t.unknown[what] + n)
}

// prediction turns the times into what people read.
func (m *machine) prediction(t times) *Prediction {
	p := &Prediction{
		Seconds: t.seconds(), Products: t.products, Memory: t.memory, Interconnect: t.interconnect, Network: t.network, Closed: t.closed,
	}
	for _, what := range slices.Sorted(maps.Keys(t.unknown)) {
		p.Unknown = append(p.Unknown, UnknownTime{strings.ToValidUTF8(what, "\ufffd"), int(min(t.unknown[what], maxRounds))})
	}
	slices.SortStableFunc(p.Unknown, func(a, b UnknownTime) int { return cmp.Compare(b.Count, a.Count) })
	for _, name := range slices.Sorted(maps.Keys(m.constants)) {
		p.Constants = append(p.Constants, m.constants[name])
	}
	return p
}

// channel is what an operation occupies beside the core.
type channel int

const (
	transfers    channel = iota // between the memories of a chip
	interconnect                // links inside a slice
	network                     // between slices
	channels
)

// timeline is what runs beside a core in one computation: when each channel is free again, and when
// each operation that has begun will have ended, in seconds of the computation.
type timeline struct {
	free [channels]float64
	ends map[uint64]pending
}

type pending struct {
	channel       channel
	seconds, ends float64
}

// start begins an operation that takes so long.
func (l *timeline) start(id uint64, on channel, seconds, now float64) {
	if l.ends == nil {
		l.ends = map[uint64]pending{}
	}
	seconds = bounded(seconds)
	ends := max(now, l.free[on]) + seconds
	l.free[on] = ends
	l.ends[id] = pending{on, seconds, ends}
}

// begin starts what another computation does beside the core, and takes its time out of t.
func (l *timeline) begin(id uint64, t *times, now float64) {
	on, seconds := transfers, t.seconds()+t.interconnect.Hidden+t.network.Hidden
	if t.network != (Overlap{}) {
		on = network
	} else if t.interconnect != (Overlap{}) {
		on = interconnect
	}
	l.start(id, on, seconds, now)
	*t = times{unknown: t.unknown}
}

// wait adds to t how long the core waits for an operation that has begun.
func (l *timeline) wait(id uint64, t *times) {
	p, begun := l.ends[id]
	if !begun {
		return
	}
	delete(l.ends, id)
	exposed := max(p.ends-t.seconds(), 0)
	if exposed > p.seconds*(1-1e-9) { // all of it, but for rounding
		exposed = p.seconds
	}
	switch p.channel {
	case interconnect:
		t.interconnect.add(Overlap{exposed, p.seconds - exposed}, 1)
	case network:
		t.network.add(Overlap{exposed, p.seconds - exposed}, 1)
	default:
		t.add(times{memory: exposed}, 1)
	}
}

// end waits for what is left at the end of a computation.
func (l *timeline) end(t *times) {
	for _, id := range slices.Sorted(maps.Keys(l.ends)) {
		l.wait(id, t)
	}
}

// origin finds the start of an asynchronous operation that i continues or ends.
func (l *timeline) origin(c *hloComputation, i *hloInstruction) (uint64, bool) {
	for range 4 { // async-done, async-update, async-start
		if _, begun := l.ends[i.id]; begun {
			return i.id, true
		}
		if len(i.operands) == 0 || c.byID[i.operands[0]] == nil {
			return 0, false
		}
		i = c.byID[i.operands[0]]
	}
	return 0, false
}
