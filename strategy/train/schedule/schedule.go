package schedule

import (
	"fmt"
	"math"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/gomlx/core/graph"

	"github.com/tpustrategy/tpustrategy/errkind"
)

// Schedule is a learning rate as a function of the steps that were taken. The zero value is none. A
// Schedule is immutable.
type Schedule struct{ f function }

// function is a schedule's formula, on the host and in a graph. Steps are not negative.
type function interface {
	at(step int64) float64
	graph(step *graph.Node) *graph.Node
	check() string // what is wrong, or ""
	fmt.Stringer
}

// Is reports whether there is a schedule: false for the zero value.
func (s Schedule) Is() bool { return s.f != nil }

// At returns the rate of the step after so many steps: At(0) is that of the first. A negative
// number counts as 0. Without a schedule it is NaN.
func (s Schedule) At(step int64) float64 {
	if s.f == nil {
		return math.NaN()
	}
	return s.f.at(max(step, 0))
}

// Graph builds the rate as a scalar of float32. step is an integer scalar that is not negative: the
// number of steps that were taken. It builds graph, and panics with its error for a step of another
// kind and for what [Schedule.Validate] refuses.
func (s Schedule) Graph(step *graph.Node) *graph.Node {
	if err := s.Validate(); err != nil {
		panic(err)
	}
	if !step.IsScalar() || !step.DType().IsInt() {
		panic(fault("give an integer scalar", "the number of the step is %s", step.Shape()))
	}
	return s.f.graph(graph.ConvertDType(step, dtypes.Int64))
}

// Validate returns an error of kind ValueError for a schedule whose rates are negative or no
// numbers, or that takes no steps. The constructors take anything.
func (s Schedule) Validate() error {
	if s.f == nil {
		return fault("make one, such as schedule.Constant", "there is none: it is the zero value")
	}
	if wrong := s.f.check(); wrong != "" {
		return fault("give rates from 0 on and at least one step", "%s: %s", s, wrong)
	}
	return nil
}

// String returns the schedule as it is written in Go, without the package's name.
func (s Schedule) String() string {
	if s.f == nil {
		return "Schedule{}"
	}
	return s.f.String()
}

func fault(hint, reason string, args ...any) error {
	return &errkind.Fault{Op: "schedule", Reason: fmt.Sprintf(reason, args...), Hint: hint, Class: errkind.ValueError}
}

// rate refuses what is no rate.
func rate(all ...float64) string {
	for _, x := range all {
		if !(x >= 0) || x > math.MaxFloat32 {
			return fmt.Sprintf("%v is no rate", x)
		}
	}
	return ""
}

// over refuses numbers of steps that do not end.
func over(steps int64, rates ...float64) string {
	if steps < 1 {
		return fmt.Sprintf("%d steps", steps)
	}
	return rate(rates...)
}

// number is a float32 constant of a graph; see [graph.Scalar], which shares nodes between branches.
func number(g *graph.Graph, x float64) *graph.Node {
	return graph.Const(g, float32(x))
}

func integer(g *graph.Graph, n int64) *graph.Node { return graph.Const(g, n) }

// part is min(step, steps) over steps, in float32.
func part(step *graph.Node, steps int64) *graph.Node {
	g := step.Graph()
	done := graph.ConvertDType(graph.Min(step, integer(g, steps)), dtypes.Float32)
	return graph.Div(done, number(g, float64(steps)))
}

// between is from + (to-from)*x.
func between(from, to float64, x *graph.Node) *graph.Node {
	g := x.Graph()
	return graph.Add(number(g, from), graph.Mul(number(g, to-from), x))
}
