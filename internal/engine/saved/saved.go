package saved

import (
	"strings"

	"github.com/gomlx/gomlx/ml/model"

	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/lowering/ragged"
	"github.com/tpustrategy/tpustrategy/lowering/spmd"
	"github.com/tpustrategy/tpustrategy/tpu"
)

// Step is a compiled step, apart from the values of its variables.
type Step struct {
	Name   string
	Target Target
	Module *spmd.Module
	// Code is the program as the plugin serialized it.
	Code []byte
	// Arguments say more of each of Module.Arguments. Updates are, for the results after the step's
	// own, the argument that gave its memory.
	Arguments []Argument
	Updates   []int
	// Cut are the padded dimensions of the step's own results, nil without padding.
	Cut [][]ragged.Dim
	// Steps is the number of steps of a loop, 0 for a step without one.
	Steps int

	// Layouts are FunctionOptions.Arguments, and what follows are the options of their names: Padding
	// is a strategy.Padding.
	Layouts                          []logical.Annotation
	SplitBatch, LocalBatch, Training bool
	Padding                          int
	// Mirrored says that the results are the same on all replicas.
	Mirrored bool
	Guard    Guard
	Metrics  Metrics
}

// Trains reports whether the step is a training step.
func (s *Step) Trains() bool { return s.Training && s.Mirrored }

// Argument describes an argument of a step beyond its tensor.
type Argument struct {
	Variable bool
	// Constant has the elements of a large constant of the step, in row-major order. Variable is
	// set, too.
	Constant []byte
	// Distributed is set for a variable that belongs to no store.
	Distributed *Variable
	// Fresh variables are made of zeros in a store that lacks them.
	Fresh bool
	// Ragged says that the replicas differ in shape. Sizes are then, of its dimensions, the padded
	// size that the dimension has, or -1.
	Ragged bool
	Sizes  []int
}

// Variable describes a distributed variable beyond its name, dtype, shape and annotation.
type Variable struct {
	// Synchronization is a strategy.VariableSynchronization, Aggregation a
	// strategy.VariableAggregation.
	Synchronization, Aggregation int
	LocalWrites                  bool
}

// Metrics are those that a step accumulates. The zero value is none.
type Metrics struct {
	// State names the distributed variable that holds them: of each, a sum and a weight.
	State string
	Names []string
	// Forms are the numbers of train.Form, of the metrics that are accumulated; the others are of
	// the last step.
	Forms []int
}

// StateName is the name of a variable that holds the running sums of a step's metrics. It says what
// it holds, so that two of one name hold the same.
func StateName(step string, holds []string) string { return step + state + strings.Join(holds, ",") }

// IsStateName reports whether a name is one of StateName.
func IsStateName(name string) bool {
	return !strings.HasPrefix(name, "/") && strings.Contains(name, state)
}

const state = "/.metrics/"

// Is reports whether there are metrics.
func (m Metrics) Is() bool { return len(m.Names) > 0 }

// Guard says how a training step treats numbers that are not finite.
type Guard struct {
	// Mode is a train.NonFinite.
	Mode int
	// Gradients are the variables that the step's gradients are for, in their order.
	Gradients []string
}

// Counter is the path of the variable in which a step of this name counts for its guard.
func Counter(step string) string { return model.JoinPath("/non_finite", step) }

// ProxyPath returns the path of the store variable that represents the strategy variable with the
// given name in a training step.
func ProxyPath(name string) string { return "/distributed/" + strings.Trim(name, "/") }

// Target describes the slice and the devices that a step is compiled for.
type Target struct {
	// Plugin is the identity of the plugin's build, Devices the kind of the devices.
	Plugin, Devices string
	// Topology names the slice; Mesh, IDs and Coordinates are what counts. IDs and Coordinates are
	// those of the devices by replica and logical device.
	Topology    string
	Mesh        tpu.Coordinates
	IDs         [][]int
	Coordinates [][]tpu.Coordinates
}

// Problem says why a step cannot be taken apart or put together.
type Problem int

const (
	// Damaged says that the program is not the one that the step says it is.
	Damaged Problem = iota + 1
	// BadVariable says that a variable does not fit.
	BadVariable
	// Unsupported says that the step cannot be saved.
	Unsupported
	// OtherArguments says that the step was not compiled for the arguments.
	OtherArguments
)

// Misfit describes a problem: the variable that does not fit, if it is a variable, what was found
// and what was expected.
type Misfit struct {
	Problem Problem
	// Variable names the variable that does not fit, if it is a variable.
	Variable string
	// Detail says what was found and what was expected, Hint what to do. Err is the cause, if
	// there is one.
	Detail, Hint string
	Err          error
}

// Fail makes the error of a misfit, which the caller of package strategy/stepfile sees.
type Fail func(Misfit) error
