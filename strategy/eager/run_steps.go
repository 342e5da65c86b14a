package eager

import (
	"context"
	"errors"
	"io"
	"maps"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/internal/engine"
	"github.com/tpustrategy/tpustrategy/internal/engine/fault"
	"github.com/tpustrategy/tpustrategy/internal/engine/mode"
	"github.com/tpustrategy/tpustrategy/strategy"
)

// StepIterator returns the inputs of steps, and io.EOF at the end.
type StepIterator interface {
	Next(ctx context.Context) (any, error)
}

// MultiStepContext has the outputs of [Extended.RunStepsOnIterator], like TensorFlow's
// MultiStepContext.
type MultiStepContext struct {
	strategy  *strategy.TPUStrategy
	outputs   map[string]any
	reduceOps map[string]*strategy.ReduceOp
	others    map[string]any
}

// LastStepOutputs returns the outputs of the latest step. The keys are the names of the outputs. It
// corresponds to TensorFlow's last_step_outputs.
func (m *MultiStepContext) LastStepOutputs() map[string]any { return maps.Clone(m.outputs) }

// ReduceOps returns the op with which each output is reduced, or nil for an output that is not
// reduced. The keys are the names of the outputs.
func (m *MultiStepContext) ReduceOps() map[string]*strategy.ReduceOp { return maps.Clone(m.reduceOps) }

// NonTensorOutputs returns the outputs that are not tensors. The keys are the names of the outputs.
// It corresponds to TensorFlow's non_tensor_outputs.
func (m *MultiStepContext) NonTensorOutputs() map[string]any { return maps.Clone(m.others) }

// SetLastStepOutput sets an output of the step, like TensorFlow's set_last_step_output. If op is
// given, the output is reduced over the replicas. In replica code it is a collective call and
// requires op; without op it returns an [*strategy.Error] of kind AssertionError.
func (m *MultiStepContext) SetLastStepOutput(ctx context.Context, name string, output any,
	op ...strategy.ReduceOp) error {
	if err := strategy.RefuseTracing(ctx, "step output "+name,
		"return it from the step, and set it after the run"); err != nil {
		return err
	}
	if rc, ok := ReplicaContextOf(ctx); ok {
		if len(op) == 0 {
			return fault.New(errkind.AssertionError, "step output "+name,
				"give one, or return the output and set it outside", "a replica's output needs a reduction")
		}
		_, err := rc.MergeCall(func(ctx context.Context, args ...any) (any, error) {
			return nil, m.SetLastStepOutput(ctx, name, args[0], op...)
		}, output)
		return err
	}
	m.reduceOps[name] = nil
	if len(op) > 0 {
		reduced, err := Of(m.strategy).Reduce(ctx, op[0], output)
		if err != nil {
			return err
		}
		output = reduced
		m.reduceOps[name] = &op[0]
	}
	m.outputs[name] = output
	return nil
}

// SetNonTensorOutput sets an output that is not a tensor, like TensorFlow's set_non_tensor_output.
// In replica code it stores a slice of the outputs of this process's replicas; see
// [Extended.LocalResultsOf].
func (m *MultiStepContext) SetNonTensorOutput(ctx context.Context, name string, output any) error {
	if err := strategy.RefuseTracing(ctx, "step output "+name,
		"return it from the step, and set it after the run"); err != nil {
		return err
	}
	if rc, ok := ReplicaContextOf(ctx); ok {
		_, err := rc.MergeCall(func(_ context.Context, args ...any) (any, error) {
			results, err := Of(m.strategy).LocalResultsOf(args[0])
			m.others[name] = results
			return nil, err
		}, output)
		return err
	}
	m.others[name] = output
	return nil
}

// RunStepsOnIterator calls fn for each of several steps, in cross-replica context, with the step's
// input, like TensorFlow's experimental_run_steps_on_iterator. It returns a context with the
// outputs of the last step. initial has the outputs before the first step and may be nil. If
// iterations is 0, one step runs.
//
// If the input ends early, the error is an [*strategy.Error] of kind OutOfRangeError that wraps
// io.ErrUnexpectedEOF. The context is returned with this error, unless no step ran.
func (e *Extended) RunStepsOnIterator(ctx context.Context, fn func(ctx context.Context, m *MultiStepContext,
	inputs any) error,
	it StepIterator, iterations int, initial map[string]any) (*MultiStepContext, error) {
	s := e.strategy
	if err := engine.Internal(s).CheckEager(ctx, "run steps", fault.InsteadOfRunning); err != nil {
		return nil, err
	}
	if iterations < 0 {
		return nil, fault.New(errkind.ValueError, "run steps", "give a positive number", "%d iterations", iterations)
	}
	m := &MultiStepContext{strategy: s, outputs: maps.Clone(initial), reduceOps: map[string]*strategy.ReduceOp{},
		others: map[string]any{}}
	if m.outputs == nil {
		m.outputs = map[string]any{}
	}
	cross := mode.With(ctx, mode.Cross(s))
	for i := range max(iterations, 1) {
		inputs, err := it.Next(cross)
		if errors.Is(err, io.EOF) {
			err := fault.New(errkind.OutOfRangeError, "run steps", "repeat the dataset, or ask for fewer",
				"the input ended after %d of %d steps", i, max(iterations, 1))
			err.Err = io.ErrUnexpectedEOF
			if i == 0 {
				m = nil
			}
			return m, err
		}
		if err != nil {
			return nil, err
		}
		if _, err := errkind.CatchPanic("strategy: run steps", func() (any, error) {
			return nil,
				fn(cross, m, inputs)
		}); err != nil {
			return nil, err
		}
	}
	return m, nil
}
