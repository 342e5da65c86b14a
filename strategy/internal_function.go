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

// internalFunction has methods of a function that are not part of the public API. Only packages of
// this module call them. The setters must be called before the function runs.
type internalFunction struct{ *Function }

// internalStep has methods of a compiled step that are not part of the public API. Only packages of
// this module call them.
type internalStep struct{ *CompiledStep }

// guard decides whether the writes of a training step take effect, for example if gradients are not
// finite. Package strategy/train has the only implementation.
type guard = interface {
	// Launched is called after each launch of the function. The launch returns its error.
	Launched(ctx context.Context, f *Function) error
	// Saved describes the guard for a step file.
	Saved() savedstep.Guard
}

func (m internalFunction) CheckOpen() error { return m.checkOpen() }

func (m internalFunction) ArgumentAnnotations() []logical.Annotation {
	return slices.Clone(m.opts.Arguments)
}

// SetArgumentPaths sets the names by which errors refer to the arguments.
func (m internalFunction) SetArgumentPaths(paths []string) { m.paths = paths }

// SetMaxIterations makes each launch repeat the step while its first result is true, at most n
// times.
func (m internalFunction) SetMaxIterations(n int) { m.maxIterations = n }

func (m internalFunction) Store() *model.Store { return m.opts.Store }

// LookupVariable returns the variable at a path of the function's store. It returns false if the
// variable is not on the devices.
func (m internalFunction) LookupVariable(path string) (*Variable, bool) {
	if m.opts.Store == nil {
		return nil, false
	}
	return m.strategy.Variables(m.opts.Store).Lookup(path)
}

// ReadLocalVariable copies the shard of a variable from one device of this process to the host.
func (m internalFunction) ReadLocalVariable(ctx context.Context, v *Variable) (*tensors.Tensor, error) {
	s := m.strategy
	d := max(slices.Index(s.runtime.Local, true), 0)
	return v.LocalShard(ctx, d/s.logicalDevices, d%s.logicalDevices)
}

// SavedStep returns the description of a step that was loaded from a step file, and nil for any
// other function.
func (m internalFunction) SavedStep() *savedstep.Step { return m.loaded }

func (m internalFunction) Guard() guard { return m.guard }

func (m internalFunction) SetGuard(g guard) { m.guard = g }

// Metrics returns the metrics that the function accumulates, and the variable that stores the sums
// and weights of these metrics.
func (m internalFunction) Metrics() (savedstep.Metrics, *Variable) { return m.metrics, m.metricState }

// SetMetrics sets the metrics that the function accumulates, and the variable that stores the sums
// and weights of these metrics. If owns is true, closing the function closes this variable.
func (m internalFunction) SetMetrics(metrics savedstep.Metrics, state *Variable, owns bool) {
	m.metrics, m.metricState, m.ownsState = metrics, state, owns
}

// RunStructured runs the function like [Function.Run]. It also returns the nest that the step
// function returned.
func (m internalFunction) RunStructured(ctx context.Context, args []any) (structure any, results []*PerReplica,
	err error) {
	p, results, err := m.run(ctx, args)
	if err != nil {
		return nil, nil, err
	}
	return p.resultNest, results, nil
}
