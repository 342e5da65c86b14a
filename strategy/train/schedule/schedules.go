package schedule

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/gomlx/core/graph"
)

// Constant returns a schedule with the same rate for all steps.
func Constant(rate float64) Schedule { return Schedule{constant{rate}} }

type constant struct{ rate float64 }

func (c constant) at(int64) float64 { return c.rate }
func (c constant) check() string    { return rate(c.rate) }
func (c constant) String() string   { return fmt.Sprintf("Constant(%v)", c.rate) }
func (c constant) graph(step *graph.Node) *graph.Node {
	return number(step.Graph(), c.rate)
}

// Linear returns a schedule that changes linearly between two rates over a number of steps, and
// then stays constant. It is a decay to a lower rate or a warm-up to a higher rate.
func Linear(from, to float64, steps int64) Schedule { return Schedule{linear{from, to, steps}} }

type linear struct {
	from, to float64
	steps    int64
}

func (l linear) at(step int64) float64 {
	return l.from + (l.to-l.from)*float64(min(step, l.steps))/float64(l.steps)
}
func (l linear) check() string  { return over(l.steps, l.from, l.to) }
func (l linear) String() string { return fmt.Sprintf("Linear(%v, %v, %d)", l.from, l.to, l.steps) }
func (l linear) graph(step *graph.Node) *graph.Node {
	return interpolate(l.from, l.to, fraction(step, l.steps))
}

// Cosine returns a schedule that changes between two rates along half a period of a cosine over a
// number of steps, and then stays constant.
func Cosine(from, to float64, steps int64) Schedule { return Schedule{cosine{from, to, steps}} }

type cosine struct {
	from, to float64
	steps    int64
}

// cos²(x/2) equals (1+cos x)/2 and stays precise where the value is small.
func (c cosine) at(step int64) float64 {
	half := math.Cos(math.Pi / 2 * float64(min(step, c.steps)) / float64(c.steps))
	return c.to + (c.from-c.to)*half*half
}
func (c cosine) check() string  { return over(c.steps, c.from, c.to) }
func (c cosine) String() string { return fmt.Sprintf("Cosine(%v, %v, %d)", c.from, c.to, c.steps) }
func (c cosine) graph(step *graph.Node) *graph.Node {
	half := graph.Cos(graph.Mul(number(step.Graph(), math.Pi/2), fraction(step, c.steps)))
	return interpolate(c.to, c.from, graph.Square(half))
}

// InverseSquareRoot returns a schedule with a constant rate for the given number of steps, and
// after them rate * sqrt(steps / step).
func InverseSquareRoot(rate float64, steps int64) Schedule { return Schedule{inverse{rate, steps}} }

type inverse struct {
	rate  float64
	steps int64
}

func (i inverse) at(step int64) float64 {
	return i.rate * math.Sqrt(float64(i.steps)/float64(max(step, i.steps)))
}
func (i inverse) check() string  { return over(i.steps, i.rate) }
func (i inverse) String() string { return fmt.Sprintf("InverseSquareRoot(%v, %d)", i.rate, i.steps) }
func (i inverse) graph(step *graph.Node) *graph.Node {
	g := step.Graph()
	now := graph.ConvertDType(graph.Max(step, integer(g, i.steps)), dtypes.Float32)
	return graph.Mul(number(g, i.rate), graph.Sqrt(graph.Div(number(g, float64(i.steps)), now)))
}

// Then returns a schedule that follows s for a number of steps, and then next. The steps of next
// are counted from the change.
func (s Schedule) Then(steps int64, next Schedule) Schedule {
	return Schedule{sequence{s, steps, next}}
}

type sequence struct {
	first Schedule
	steps int64
	next  Schedule
}

func (t sequence) at(step int64) float64 {
	if step < t.steps {
		return t.first.At(step)
	}
	return t.next.At(step - t.steps)
}

func (t sequence) check() string {
	switch {
	case !t.first.Is() || !t.next.Is():
		return "there is no schedule before or after the change"
	case t.steps < 1:
		return over(t.steps)
	}
	if wrong := t.first.f.check(); wrong != "" {
		return wrong
	}
	return t.next.f.check()
}

func (t sequence) String() string { return fmt.Sprintf("%s.Then(%d, %s)", t.first, t.steps, t.next) }

func (t sequence) graph(step *graph.Node) *graph.Node {
	at := integer(step.Graph(), t.steps)
	after := graph.Max(graph.Sub(step, at), integer(step.Graph(), 0))
	return graph.Where(graph.LessThan(step, at), t.first.f.graph(step), t.next.f.graph(after))
}

// WarmUp returns a schedule that rises linearly from 0 to the first rate of next over a number of
// steps, and then follows next. The steps of next are counted from the end of the warm-up. The rate
// of the first step is 0.
func WarmUp(steps int64, next Schedule) Schedule {
	return Schedule{warmUp{sequence{Linear(0, next.At(0), steps), steps, next}}}
}

type warmUp struct{ sequence }

func (w warmUp) String() string { return fmt.Sprintf("WarmUp(%d, %s)", w.steps, w.next) }

// check checks next first, because the final rate of the warm-up comes from next.
func (w warmUp) check() string {
	if w.next.Is() {
		if wrong := w.next.f.check(); wrong != "" {
			return wrong
		}
	}
	return w.sequence.check()
}

// Piecewise returns a schedule that is constant between changes. rate applies before the first
// change. The changes must be in increasing order of their steps, and the first after step 0.
func Piecewise(rate float64, changes ...Change) Schedule {
	return Schedule{&pieces{rate, slices.Clone(changes)}}
}

// Change sets a rate that applies from a step on.
type Change struct {
	Step int64
	Rate float64
}

type pieces struct {
	rate    float64
	changes []Change
}

func (p *pieces) at(step int64) float64 {
	now := p.rate
	for _, c := range p.changes {
		if step >= c.Step {
			now = c.Rate
		}
	}
	return now
}

func (p *pieces) check() string {
	last := int64(0)
	for _, c := range p.changes {
		if c.Step <= last {
			return fmt.Sprintf("a change at step %d after one at step %d", c.Step, last)
		}
		if wrong := rate(c.Rate); wrong != "" {
			return wrong
		}
		last = c.Step
	}
	return rate(p.rate)
}

func (p *pieces) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "Piecewise(%v", p.rate)
	for _, c := range p.changes {
		fmt.Fprintf(&b, ", Change{%d, %v}", c.Step, c.Rate)
	}
	return b.String() + ")"
}

func (p *pieces) graph(step *graph.Node) *graph.Node {
	g := step.Graph()
	now := number(g, p.rate)
	for _, c := range p.changes {
		now = graph.Where(graph.GreaterOrEqual(step, integer(g, c.Step)), number(g, c.Rate), now)
	}
	return now
}
