package strategy

import (
	"context"
	"slices"

	"github.com/gomlx/gomlx/core/tensors"
	"github.com/gomlx/gomlx/ml/model"

	"github.com/tpustrategy/tpustrategy/internal/engine"
	"github.com/tpustrategy/tpustrategy/internal/engine/savedstep"
	"github.com/tpustrategy/tpustrategy/logical"
)

// functionAccess and stepAccess let the other packages of this module call the methods of
// internalFunction and internalStep, with [engine.Internal].
type (
	functionAccess = engine.Access[internalFunction]
	stepAccess     = engine.Access[internalStep]
)

// internalFunction is the internal API of a function. The setters must be called before the function
// runs.
type internalFunction struct{ *Function }

// internalStep is the internal API of a compiled step.
type internalStep struct{ *CompiledStep }

// guard decides whether the writes of a training step are kept. Package strategy/train has the only
// implementation.
type guard = interface {
	// Launched is called after each launch of the function. The launch returns its error.
	Launched(ctx context.Context, f *Function) error
	// Saved returns the description of the guard in a saved step.
	Saved() savedstep.Guard
}

// CheckOpen returns an error if the function or its strategy is closed.
func (m internalFunction) CheckOpen() error { return m.checkOpen() }

// ArgumentAnnotations returns how the arguments are split over the logical devices.
func (m internalFunction) ArgumentAnnotations() []logical.Annotation {
	return slices.Clone(m.opts.Arguments)
}

// SetArgumentPaths sets the names of the arguments in errors.
func (m internalFunction) SetArgumentPaths(paths []string) { m.paths = paths }

// SetMaxIterations makes each launch repeat the step while its first result is true, at most n times.
func (m internalFunction) SetMaxIterations(n int) { m.maxIterations = n }

// Store returns the store of the function's variables, or nil.
func (m internalFunction) Store() *model.Store { return m.opts.Store }

// LookupVariable returns the variable of the store at a path, if it is on the devices.
func (m internalFunction) LookupVariable(path string) (*Variable, bool) {
	if m.opts.Store == nil {
		return nil, false
	}
	return m.strategy.Variables(m.opts.Store).Lookup(path)
}

// ReadLocalVariable returns a variable's tensor on one device of this process.
func (m internalFunction) ReadLocalVariable(ctx context.Context, v *Variable) (*tensors.Tensor, error) {
	s := m.strategy
	d := max(slices.Index(s.runtime.Local, true), 0)
	return v.LocalShard(ctx, d/s.logicalDevices, d%s.logicalDevices)
}

// SavedStep returns the saved step from which the function was loaded, or nil if it was traced.
func (m internalFunction) SavedStep() *savedstep.Step { return m.loaded }

// Guard returns the guard of the function, or nil.
func (m internalFunction) Guard() guard { return m.guard }

// SetGuard sets the guard of the function.
func (m internalFunction) SetGuard(g guard) { m.guard = g }

// Metrics returns the metrics that the function accumulates, and the variable of their state.
func (m internalFunction) Metrics() (savedstep.Metrics, *Variable) { return m.metrics, m.metricState }

// SetMetrics sets the metrics and their state. If the function owns the state, it closes the state
// when it is closed.
func (m internalFunction) SetMetrics(metrics savedstep.Metrics, state *Variable, owns bool) {
	m.metrics, m.metricState, m.ownsState = metrics, state, owns
}

// RunStructured is like [Function.Run], and also returns the structure of the program that ran.
func (m internalFunction) RunStructured(ctx context.Context, args []any) (structure any, results []*PerReplica,
	err error) {
	p, results, err := m.run(ctx, args)
	if err != nil {
		return nil, nil, err
	}
	return p.resultNest, results, nil
}
