package cost

import (
	"cmp"
	"maps"
	"slices"

	"github.com/tpustrategy/tpustrategy/report/hlo"
)

// Overlap divides the time of collectives in seconds. Exposed is the time during which a core waits
// for them, and Hidden is the time during which the core runs other operations.
type Overlap struct {
	Exposed float64 `json:"exposed_seconds"`
	Hidden  float64 `json:"hidden_seconds"`
}

// times contains the predicted times of a part of a program, by the categories of a Prediction.
type times struct {
	products, closed, memory float64
	interconnect, network    Overlap
	unknown                  map[string]float64
}

func (t times) seconds() float64 {
	return t.products + t.memory + t.interconnect.Exposed + t.network.Exposed
}

// longest is a limit in seconds that no real step reaches. It bounds the figures of a malformed
// program.
const longest = 1e15

// bounded returns x, or a large finite number if x is larger or not a number.
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
	for operation, count := range o.unknown {
		if n > 0 {
			t.addUnknown(operation, n*count)
		}
	}
}

func (t times) since(o times) times {
	return times{
		products: t.products - o.products, closed: t.closed - o.closed, memory: t.memory - o.memory,
		interconnect: t.interconnect.since(o.interconnect), network: t.network.since(o.network),
	}
}

func (o Overlap) since(x Overlap) Overlap { return Overlap{o.Exposed - x.Exposed, o.Hidden - x.Hidden} }

func (o *Overlap) add(x Overlap, n float64) {
	o.Exposed = bounded(o.Exposed + n*x.Exposed)
	o.Hidden = bounded(o.Hidden + n*x.Hidden)
}

func (t *times) addUnknown(operation string, n float64) {
	if t.unknown == nil {
		t.unknown = map[string]float64{}
	}
	t.unknown[operation] = bounded(t.unknown[operation] + n)
}

// channel is a resource that asynchronous operations use one after another, such as the
// interconnect.
type channel int

const (
	transfers    channel = iota // between the memories of a chip
	interconnect                // links inside a slice
	network                     // between slices
	channels
)

var channelNames = [channels]string{"transfers", "interconnect", "network"}

// timeline simulates the asynchronous operations of one computation. Times are in seconds since the
// start of the computation.
type timeline struct {
	// free is the time at which each channel is free again.
	free    [channels]float64
	pending map[*hlo.Instruction]pending // by the instruction that starts the operation
	// started is the last started transfer.
	started *Transfer
}

type pending struct {
	channel      channel
	seconds, end float64
}

func (l *timeline) start(i *hlo.Instruction, on channel, seconds, now float64) {
	if l.pending == nil {
		l.pending = map[*hlo.Instruction]pending{}
	}
	seconds = bounded(seconds)
	end := max(now, l.free[on]) + seconds
	l.free[on] = end
	l.pending[i] = pending{on, seconds, end}
	if seconds > 0 {
		l.started = &Transfer{On: channelNames[on], Start: end - seconds, Seconds: seconds}
	}
}

// startAll starts an asynchronous computation, whose operations take the time t, as a single
// operation. It then removes this time from t, because the core does not wait for it yet.
func (l *timeline) startAll(i *hlo.Instruction, t *times, now float64) {
	on, seconds := transfers, t.seconds()+t.interconnect.Hidden+t.network.Hidden
	if t.network != (Overlap{}) {
		on = network
	} else if t.interconnect != (Overlap{}) {
		on = interconnect
	}
	l.start(i, on, seconds, now)
	*t = times{unknown: t.unknown}
}

// wait completes the asynchronous operation that start has started. It adds the time that the core
// waits for the operation to t.
func (l *timeline) wait(start *hlo.Instruction, t *times) {
	p, isPending := l.pending[start]
	if !isPending {
		return
	}
	delete(l.pending, start)
	exposed := max(p.end-t.seconds(), 0)
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

func (l *timeline) finish(t *times) {
	rest := slices.SortedFunc(maps.Keys(l.pending), func(a, b *hlo.Instruction) int { return cmp.Compare(a.ID, b.ID) })
	for _, start := range rest {
		l.wait(start, t)
	}
}

// startOf returns the instruction that started the asynchronous operation of i, which continues or
// completes the operation. It returns nil if the operation was not started.
func (l *timeline) startOf(i *hlo.Instruction) *hlo.Instruction {
	for range 4 { // async-done, async-update, async-start
		if _, isPending := l.pending[i]; isPending {
			return i
		}
		if len(i.Operands) == 0 || i.Operands[0] == nil {
			return nil
		}
		i = i.Operands[0]
	}
	return nil
}
