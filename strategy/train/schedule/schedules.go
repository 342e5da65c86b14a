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
func (c constant) check() string    { return checkRates(c.rate) }
func (c constant) String() string   { return fmt.Sprintf("Constant(%v)", c.rate) }
func (c constant) graph(step *graph.Node) *graph.Node {
	return float32Const(step.Graph(), c.rate)
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
func (l linear) check() string  { return checkSteps(l.steps, l.from, l.to) }
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

// at computes the rate with cos²(x/2), which equals (1+cos x)/2 and is more precise where the value
// is small.
func (c cosine) at(step int64) float64 {
	half := math.Cos(math.Pi / 2 * float64(min(step, c.steps)) / float64(c.steps))
	return c.to + (c.from-c.to)*half*half
}
func (c cosine) check() string  { return checkSteps(c.steps, c.from, c.to) }
func (c cosine) String() string { return fmt.Sprintf("Cosine(%v, %v, %d)", c.from, c.to, c.steps) }
func (c cosine) graph(step *graph.Node) *graph.Node {
	half := graph.Cos(graph.Mul(float32Const(step.Graph(), math.Pi/2), fraction(step, c.steps)))
	return interpolate(c.to, c.from, graph.Square(half))
}

// InverseSquareRoot returns a schedule whose rate is constant for the given number of steps.
// Afterwards the rate is rate * sqrt(steps / step).
func InverseSquareRoot(rate float64, steps int64) Schedule {
	return Schedule{inverseSquareRoot{rate, steps}}
}

type inverseSquareRoot struct {
	rate  float64
	steps int64
}

func (i inverseSquareRoot) at(step int64) float64 {
	return i.rate * math.Sqrt(float64(i.steps)/float64(max(step, i.steps)))
}
func (i inverseSquareRoot) check() string { return checkSteps(i.steps, i.rate) }
func (i inverseSquareRoot) String() string {
	return fmt.Sprintf("InverseSquareRoot(%v, %d)", i.rate, i.steps)
}
func (i inverseSquareRoot) graph(step *graph.Node) *graph.Node {
	g := step.Graph()
	now := graph.ConvertDType(graph.Max(step, int64Const(g, i.steps)), dtypes.Float32)
	return graph.Mul(float32Const(g, i.rate), graph.Sqrt(graph.Div(float32Const(g, float64(i.steps)), now)))
}

// Then returns a schedule that follows s for the given number of steps, and then follows next.
// After the change, the step numbers of next start at 0.
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
	case !t.first.IsSet() || !t.next.IsSet():
		return "there is no schedule before or after the change"
	case t.steps < 1:
		return checkSteps(t.steps)
	}
	if wrong := t.first.f.check(); wrong != "" {
		return wrong
	}
	return t.next.f.check()
}

func (t sequence) String() string { return fmt.Sprintf("%s.Then(%d, %s)", t.first, t.steps, t.next) }

func (t sequence) graph(step *graph.Node) *graph.Node {
	at := int64Const(step.Graph(), t.steps)
	after := graph.Max(graph.Sub(step, at), int64Const(step.Graph(), 0))
	return graph.Where(graph.LessThan(step, at), t.first.f.graph(step), t.next.f.graph(after))
}

// WarmUp returns a schedule that rises linearly from 0 to the first rate of next over the given
// number of steps, and then follows next. After the warm-up, the step numbers of next start at 0.
// The rate of the first step of the warm-up is 0.
func WarmUp(steps int64, next Schedule) Schedule {
	return Schedule{warmUp{sequence{Linear(0, next.At(0), steps), steps, next}}}
}

type warmUp struct{ sequence }

func (w warmUp) String() string { return fmt.Sprintf("WarmUp(%d, %s)", w.steps, w.next) }

// check validates next before the warm-up, because the warm-up rises to the first rate of next.
func (w warmUp) check() string {
	if w.next.IsSet() {
		if wrong := w.next.f.check(); wrong != "" {
			return wrong
		}
	}
	return w.sequence.check()
}

// Piecewise returns a schedule that is constant between changes. rate applies before the first change. The
// changes must be in increasing order of their steps, and the first step must be greater than 0.
func Piecewise(rate float64, changes ...Change) Schedule {
	return Schedule{&piecewise{rate, slices.Clone(changes)}}
}

// Change is a step from which [Piecewise] uses another learning rate.
type Change struct {
	Step int64
	Rate float64
}

type piecewise struct {
	rate    float64
	changes []Change
}

func (p *piecewise) at(step int64) float64 {
	now := p.rate
	for _, c := range p.changes {
		if step >= c.Step {
			now = c.Rate
		}
	}
	return now
}

func (p *piecewise) check() string {
	last := int64(0)
	for _, c := range p.changes {
		if c.Step <= last {
			return fmt.Sprintf("a change at step %d after one at step %d", c.Step, last)
		}
		if wrong := checkRates(c.Rate); wrong != "" {
			return wrong
		}
		last = c.Step
	}
	return checkRates(p.rate)
}

func (p *piecewise) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "Piecewise(%v", p.rate)
	for _, c := range p.changes {
		fmt.Fprintf(&b, ", Change{%d, %v}", c.Step, c.Rate)
	}
	return b.String() + ")"
}

func (p *piecewise) graph(step *graph.Node) *graph.Node {
	g := step.Graph()
	now := float32Const(g, p.rate)
	for _, c := range p.changes {
		now = graph.Where(graph.GreaterOrEqual(step, int64Const(g, c.Step)), float32Const(g, c.Rate), now)
	}
	return now
}
