package report

import (
	"maps"
	"slices"
)

// Overlap is the time of collectives: Exposed while a core waits, and Hidden behind other
// operations, as the program is scheduled. Both are in seconds.
type Overlap struct {
	Exposed float64 `json:"exposed_seconds"`
	Hidden  float64 `json:"hidden_seconds"`
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

// since is what has been added to an earlier t, without what is not known.
func (t times) since(o times) times {
	return times{
		products: t.products - o.products, closed: t.closed - o.closed, memory: t.memory - o.memory,
		interconnect: t.interconnect.since(o.interconnect), network: t.network.since(o.network),
	}
}

func (o Overlap) since(x Overlap) Overlap { return Overlap{o.Exposed - x.Exposed, o.Hidden - x.Hidden} }

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

// channel is what an operation occupies beside the core.
type channel int

const (
	transfers    channel = iota // between the memories of a chip
	interconnect                // links inside a slice
	network                     // between slices
	channels
)

var channelNames = [channels]string{"transfers", "interconnect", "network"}

// timeline is what runs beside a core in one computation: when each channel is free again, and when
// each operation that has begun will have ended, in seconds of the computation.
type timeline struct {
	free [channels]float64
	ends map[uint64]pending
	// begun is what began last.
	begun *Transfer
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
	if seconds > 0 {
		l.begun = &Transfer{On: channelNames[on], Start: ends - seconds, Seconds: seconds}
	}
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
