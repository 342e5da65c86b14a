package savedstep

import (
	"strings"

	"github.com/gomlx/gomlx/ml/model"

	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/lowering/ragged"
	"github.com/tpustrategy/tpustrategy/lowering/spmd"
	"github.com/tpustrategy/tpustrategy/tpu"
)

// Step is a compiled step without the values of its variables.
type Step struct {
	Name   string
	Target Target
	Module *spmd.Module
	// Code is the compiled program, serialized by the plugin.
	Code []byte
	// Arguments has one element for each element of Module.Arguments.
	Arguments []Argument
	// Updates has one element for each result that is the new value of a variable: the index of the
	// argument whose memory the result reuses. These results follow the results of the step
	// function.
	Updates []int
	// PaddedResults are the padded dimensions of the step function's results, or nil without
	// padding.
	PaddedResults [][]ragged.Dim
	// Steps is the number of steps of a loop, or 0 for a single step.
	Steps int

	// Annotations is strategy.FunctionOptions.Arguments. SplitBatch, LocalBatch, Training and
	// Padding, a strategy.Padding, are the options of the same names.
	Annotations                      []logical.Annotation
	SplitBatch, LocalBatch, Training bool
	Padding                          int
	// Mirrored reports whether the results are equal on all replicas.
	Mirrored bool
	Guard    Guard
	Metrics  Metrics
}

// IsTraining reports whether the step is a training step.
func (s *Step) IsTraining() bool { return s.Training && s.Mirrored }

// Argument describes an argument of a step, in addition to its description in
// [spmd.Module].Arguments.
type Argument struct {
	// Variable reports whether the argument is the value of a variable or of a large constant.
	Variable bool
	// Constant has the elements of a large constant in row-major order, or nil.
	Constant []byte
	// Distributed describes a variable of the strategy's scope. It is nil for a variable of a
	// store.
	Distributed *Variable
	// ZeroIfMissing reports whether a store without this variable gets it, with the value 0.
	ZeroIfMissing bool
	// Ragged reports whether the argument may have a different shape on each replica. Sizes then
	// has, for each dimension, the index of its padded size, or -1 for a dimension without padding.
	Ragged bool
	Sizes  []int
}

// Variable describes a distributed variable, in addition to the description of its argument in
// Step.Module.
type Variable struct {
	// Synchronization is a strategy.VariableSynchronization. Aggregation is a
	// strategy.VariableAggregation.
	Synchronization, Aggregation int
	LocalWrites                  bool
}

// Metrics describes the metrics that a step accumulates. The zero value means that there are none.
type Metrics struct {
	// State is the name of the distributed variable with a weighted sum and a weight for each
	// metric.
	State string
	Names []string
	// Forms has a train.Form for each accumulated metric. The metrics after these are values of the
	// last step.
	Forms []int
}

// MetricStateName returns the name of the variable with the running sums of a step's metrics. The
// name contains the descriptions of the metrics, so that variables of the same name have the same
// metrics.
func MetricStateName(step string, descriptions []string) string {
	return step + metricState + strings.Join(descriptions, ",")
}

// IsMetricStateName reports whether [MetricStateName] returned the name.
func IsMetricStateName(name string) bool {
	return !strings.HasPrefix(name, "/") && strings.Contains(name, metricState)
}

const metricState = "/.metrics/"

// IsSet reports whether there are metrics.
func (m Metrics) IsSet() bool { return len(m.Names) > 0 }

// Guard describes how a training step handles a loss or gradients that are not finite.
type Guard struct {
	// Mode is a train.NonFinite.
	Mode int
	// Gradients are the names of the variables of the gradients, in the order of the gradients.
	Gradients []string
}

// GuardPath returns the path of the store variable that counts the step's non-finite updates.
func GuardPath(step string) string { return model.JoinPath("/non_finite", step) }

// ProxyPath returns the path of the store variable that represents a strategy variable of the given
// name while a training step is traced. GoMLX's optimizers only update variables of a store.
func ProxyPath(name string) string { return "/distributed/" + strings.Trim(name, "/") }

// Target describes the slice and the devices that a step is compiled for.
type Target struct {
	// Plugin identifies the build of the plugin. Devices is the kind of the devices.
	Plugin, Devices string
	// Topology is the name of the slice in messages. Mesh is the size of the slice in each
	// dimension.
	Topology string
	Mesh     tpu.Coordinates
	// IDs and Coordinates are the device ids and their coordinates, by replica and logical device.
	IDs         [][]int
	Coordinates [][]tpu.Coordinates
}

// Problem classifies why a step cannot be saved or loaded.
type Problem int

const (
	// Damaged means that the program does not match the description of the step.
	Damaged Problem = iota + 1
	// BadVariable means that a variable does not match the step.
	BadVariable
	// Unsupported means that the step cannot be saved.
	Unsupported
	// OtherArguments means that the step was not compiled for the arguments.
	OtherArguments
)

// Mismatch describes why a step cannot be saved or loaded.
type Mismatch struct {
	Problem Problem
	// Variable is the name of the variable that does not match, or "".
	Variable string
	// Detail describes the found and the expected state. Hint suggests a correction.
	Detail, Hint string
	// Err is the cause, or nil.
	Err error
}

// NewError converts a Mismatch to an error for the caller of package strategy/stepfile.
type NewError func(Mismatch) error
