package report

import (
	"maps"
	"slices"
)

// Overlap is the time of collectives in seconds: Exposed while a core waits, and Hidden by other
// operations of the schedule.
type Overlap struct {
	Exposed float64 `json:"exposed_seconds"`
	Hidden  float64 `json:"hidden_seconds"`
}

// times is the predicted time of a part of a program, see Prediction.
type times struct {
	products, closed, memory float64
	interconnect, network    Overlap
	unknown                  map[string]float64
}

// seconds returns the time during which a core is occupied.
func (t times) seconds() float64 {
	return t.products + t.memory + t.interconnect.Exposed + t.network.Exposed
}

// longest is a limit in seconds that no real step reaches. It bounds the figures of a malformed
// program.
const longest = 1e15

// bounded limits a time or a count to a finite number.
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

// since returns the difference to an earlier t, without the unknown operations.
func (t times) since(o times) times {
	return times{
		products: t.products - o.products, closed: t.closed - o.closed, memory: t.memory - o.memory,
		interconnect: t.interconnect.since(o.interconnect), network: t.network.since(o.network),
	}
}

func (o Overlap) since(x Overlap) Overlap { return Overlap{o.Exposed - x.Exposed, o.Hidden - x.Hidden} }

// longer returns the times that occupy a core for longer.
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

// missing records operations without a known time.
func (t *times) missing(what string, n float64) {
	if t.unknown == nil {
		t.unknown = map[string]float64{}
	}
	t.unknown[what] = bounded(t.unknown[what] + n)
}

// channel is the resource that an asynchronous operation occupies.
type channel int

const (
	transfers    channel = iota // between the memories of a chip
	interconnect                // links inside a slice
	network                     // between slices
	channels
)

var channelNames = [channels]string{"transfers", "interconnect", "network"}

// timeline contains the asynchronous operations of one computation: the time at which each channel
// is free again, and the end of each operation that has started, in seconds since the start of the
// computation.
type timeline struct {
	free [channels]float64
	ends map[uint64]pending
	// begun is the last started transfer.
	begun *Transfer
}

type pending struct {
	channel       channel
	seconds, ends float64
}

// start starts an operation with the given duration.
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

// begin starts the asynchronous operations of another computation, and removes their time from t.
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

// wait adds to t the time that the core waits for a started operation.
func (l *timeline) wait(id uint64, t *times) {
	p, begun := l.ends[id]
	if !begun {
		return
	}
	delete(l.ends, id)
	exposed := max(p.ends-t.seconds(), 0)
	if exposed > p.seconds*(1-1e-9) { // everything, except for rounding
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

// end waits for the remaining operations at the end of a computation.
func (l *timeline) end(t *times) {
	for _, id := range slices.Sorted(maps.Keys(l.ends)) {
		l.wait(id, t)
	}
}

// origin returns the start of an asynchronous operation that i continues or ends.
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
