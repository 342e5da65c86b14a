package schedule

import (
	"fmt"
	"math"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/gomlx/core/graph"

	"github.com/tpustrategy/tpustrategy/errkind"
)

// Schedule is a learning rate as a function of the number of applied steps. The zero value is not a
// schedule; see [Schedule.IsSet]. A Schedule is immutable.
type Schedule struct{ f function }

// function computes the rate of a schedule, both on the host and in a graph. Step numbers are never
// negative.
type function interface {
	at(step int64) float64
	graph(step *graph.Node) *graph.Node
	check() string // describes why the schedule is invalid; "" if it is valid
	fmt.Stringer
}

// IsSet reports whether s is a schedule, which means that it is not the zero value.
func (s Schedule) IsSet() bool { return s.f != nil }

// At returns the learning rate after the given number of applied steps. At(0) is the rate of the
// first step. A negative number counts as 0. For the zero Schedule At returns NaN.
func (s Schedule) At(step int64) float64 {
	if s.f == nil {
		return math.NaN()
	}
	return s.f.at(max(step, 0))
}

// Graph builds the rate as a float32 scalar. step is the number of applied steps, a non-negative
// integer scalar. Graph panics if step is not an integer scalar, and for a schedule that
// [Schedule.Validate] rejects.
func (s Schedule) Graph(step *graph.Node) *graph.Node {
	if err := s.Validate(); err != nil {
		panic(err)
	}
	if !step.IsScalar() || !step.DType().IsInt() {
		panic(fault("give an integer scalar", "the number of the step is %s", step.Shape()))
	}
	return s.f.graph(graph.ConvertDType(step, dtypes.Int64))
}

// Validate returns an error of kind ValueError for the zero Schedule, for rates that are negative,
// NaN or greater than the maximum of float32, and for numbers of steps below 1. The constructors do
// not validate their arguments.
func (s Schedule) Validate() error {
	if s.f == nil {
		return fault("make one, such as schedule.Constant", "there is none: it is the zero value")
	}
	if wrong := s.f.check(); wrong != "" {
		return fault("give rates from 0 on and at least one step", "%s: %s", s, wrong)
	}
	return nil
}

// String returns the Go expression of the schedule, without the package name.
func (s Schedule) String() string {
	if s.f == nil {
		return "Schedule{}"
	}
	return s.f.String()
}

func fault(hint, reason string, args ...any) error {
	return &errkind.Fault{Op: "schedule", Reason: fmt.Sprintf(reason, args...), Hint: hint, Class: errkind.ValueError}
}

// checkRates describes the first of the numbers that is not a valid learning rate. It returns "" if
// all are valid.
func checkRates(all ...float64) string {
	for _, x := range all {
		if !(x >= 0) || x > math.MaxFloat32 {
			return fmt.Sprintf("%v is no rate", x)
		}
	}
	return ""
}

// checkSteps is like checkRates, and also describes a number of steps below 1.
func checkSteps(steps int64, rates ...float64) string {
	if steps < 1 {
		return fmt.Sprintf("%d steps", steps)
	}
	return checkRates(rates...)
}

// float32Const returns a new node for a float32 constant. [graph.Scalar] would instead share one
// node with all branches of the graph.
func float32Const(g *graph.Graph, x float64) *graph.Node {
	return graph.Const(g, float32(x))
}

func int64Const(g *graph.Graph, n int64) *graph.Node { return graph.Const(g, n) }

// fraction returns min(step, steps)/steps in float32: the completed part of a phase of a schedule.
func fraction(step *graph.Node, steps int64) *graph.Node {
	g := step.Graph()
	done := graph.ConvertDType(graph.Min(step, int64Const(g, steps)), dtypes.Float32)
	return graph.Div(done, float32Const(g, float64(steps)))
}

// interpolate returns from + (to-from)*x in float32.
func interpolate(from, to float64, x *graph.Node) *graph.Node {
	g := x.Graph()
	return graph.Add(float32Const(g, from), graph.Mul(float32Const(g, to-from), x))
}
