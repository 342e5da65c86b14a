package strategy

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/core/tensors"
	"github.com/gomlx/gomlx/ml/model"
	"golang.org/x/sync/semaphore"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/internal/engine"
	"github.com/tpustrategy/tpustrategy/internal/engine/fault"
	"github.com/tpustrategy/tpustrategy/internal/engine/lazytensor"
	"github.com/tpustrategy/tpustrategy/logical"
)

// strategyAccess lets the other packages of this module call the methods of internalStrategy on a
// strategy, with [engine.Internal].
type strategyAccess = engine.Access[internalStrategy]

// internalStrategy is the internal API of a strategy. TPUStrategy is nil for a strategy that New did
// not create.
type internalStrategy struct{ *TPUStrategy }

// CheckUsable returns an error inside a traced step function, for a strategy without devices, and
// for a closed strategy.
func (m internalStrategy) CheckUsable(ctx context.Context, op string) error {
	if err := RefuseTracing(ctx, op, fault.InsteadOfMeeting); err != nil {
		return err
	}
	if err := m.checkRunnable(op); err != nil {
		return err
	}
	return m.checkOpen()
}

// CheckCrossReplica returns an error in replica code and in another strategy's scope.
func (m internalStrategy) CheckCrossReplica(ctx context.Context, op string) error {
	return m.requireCross(ctx, op)
}

// CheckEager returns the errors of CheckCrossReplica, and an error inside a traced step. The argument
// instead is the hint of that error.
func (m internalStrategy) CheckEager(ctx context.Context, op, instead string) error {
	return m.requireEager(ctx, op, instead)
}

// CheckOpen returns [ErrClosed] if the strategy is closed.
func (m internalStrategy) CheckOpen() error { return m.checkOpen() }

// CheckVariable returns an error for a variable that is closed or belongs to another strategy.
func (m internalStrategy) CheckVariable(v *Variable) error {
	if err := v.checkOwnedBy(m.TPUStrategy, "load step"); err != nil {
		return err
	}
	m.runtime.Launch.Lock()
	defer m.runtime.Launch.Unlock()
	return v.checkOpen()
}

// CheckScatter returns an error for a scatter that the variable does not support.
func (m internalStrategy) CheckScatter(v *Variable, op ScatterOp, inStep bool) error {
	return v.checkScatter(op, inStep)
}

// MergeCall returns the merge call of package eager that ctx belongs to, or nil.
func (m internalStrategy) MergeCall(ctx context.Context, op string) (code any, err error) {
	return m.mergeCall(ctx, op)
}

// NextCallNumber numbers the calls in which all processes take part, from 1.
func (m internalStrategy) NextCallNumber() uint64 { return m.sequence.Add(1) }

// DeviceNames returns TensorFlow's names of each replica's logical devices and of its host.
// devicesPerHost is the number of devices of one host.
func (m internalStrategy) DeviceNames() (devices [][]string, hosts []string, devicesPerHost int) {
	for r := range m.replicas {
		names, host := m.deviceNames(r)
		devices, hosts = append(devices, names), append(hosts, host)
	}
	return devices, hosts, m.runtime.Topology().NumTPUsPerTask()
}

// Logger returns the logger of the options, or nil.
func (m internalStrategy) Logger() *slog.Logger { return m.opts.Logger }

// Runtime returns the runtime of the strategy's devices.
func (m internalStrategy) Runtime() *engine.Runtime { return m.runtime }

// StartGather starts a [TPUStrategy.GatherBytes] without waiting for it: the exchange is a launch
// among the steps, whose result is read some steps later. The name and the message together must not
// exceed 497 bytes.
func (m internalStrategy) StartGather(ctx context.Context, name string, message []byte) (*engine.GatherFuture, error) {
	if err := m.CheckUsable(ctx, "gather "+name); err != nil {
		return nil, err
	}
	return m.runtime.StartGather(ctx, "gather "+name, message)
}

// RunBuiltin runs a small program with values and variables. It is compiled once for each name and
// signature. results are the annotations of the results; mirrored results are equal on every
// replica. A cached program reads and writes the variables by position, so the name must identify
// variables that are passed twice.
func (m internalStrategy) RunBuiltin(ctx context.Context, name string, step StepFunc, values []Value,
	variables []*Variable, mirrored bool, results ...logical.Annotation) ([]Value, error) {
	return builtinCall{name: name, values: values, variables: variables, mirrored: mirrored, results: results,
		step: step}.run(ctx, m.TPUStrategy)
}

// NewTrainingFunction returns a function that has all variables of its store and whose results are
// equal on all replicas. microbatches is the number of microbatches for reports; 0 means 1. paddedRows
// returns the padded number of rows of each microbatch of the arguments, or 0 if no rows are padded.
func (m internalStrategy) NewTrainingFunction(step StepFunc, opts FunctionOptions, microbatches int,
	paddedRows func(arguments []Value) int) *Function {
	opts.mirroredResults = true
	f := m.Function(step, opts)
	f.usesAllVariables, f.microbatches, f.paddedMicrobatchRows = true, max(microbatches, 1), paddedRows
	return f
}

// SetTrainingCheck sets a check of the graph of each function that trains. It must be called before
// the first trace.
func (m internalStrategy) SetTrainingCheck(check func(g *graph.Graph) error) { m.checkTraining = check }

// ShardsState reports whether any state is sharded over the replicas.
func (m internalStrategy) ShardsState() bool { return m.shardsState }

// IsMirrored reports whether all replicas must have the same value of a variable.
func (m internalStrategy) IsMirrored(v *Variable) bool {
	return !v.perReplica() && !v.replicaShard.IsSharded()
}

// NewMetricState creates the variable in which a function accumulates n metrics. It has shape [n, 2]:
// a sum and a weight for each metric, separately on each replica. The zeros are copied to the devices
// before the first run, like the values of a store.
func (m internalStrategy) NewMetricState(name string, n int) (*Variable, error) {
	s, store := m.TPUStrategy, model.NewStore()
	v := &Variable{strategy: s, path: name, dtype: dtypes.Float64, shape: []int{n, 2}, annotation: logical.Replicated(),
		synchronization: OnRead, aggregation: AggregateSum}
	if _, err := store.CreateVariable(name, tensors.FromShape(v.Shape())); err != nil {
		return nil, v.wrapError(err)
	}
	v.pending.Store(&Variables{strategy: s, store: store, semaphore: semaphore.NewWeighted(1)})
	return v, s.registerVariables(v)
}

// NewZeroVariables creates variables with a separate tensor on each replica, initialized with zeros.
// It uses the name, for errors and reports, and the annotation of the options. The zeros are computed
// on the devices; ahead of time there are no buffers. The variables are not listed: checkpoints, rules
// and optimizers ignore them. Close releases a variable.
func (m internalStrategy) NewZeroVariables(ctx context.Context, types []shapes.Shape,
	opts []VariableOptions) ([]*Variable, error) {
	s := m.TPUStrategy
	variables := make([]*Variable, len(types))
	var key strings.Builder
	var layouts []logical.Annotation
	for i, shape := range types {
		v := &Variable{strategy: s, path: opts[i].Name, dtype: shape.DType, shape: slices.Clone(shape.Dimensions),
			annotation:      opts[i].Annotation,
			synchronization: OnRead, unlisted: true}
		if err := v.annotation.ValidateOn(s.axes, v.path, v.shape); err != nil {
			return nil, &Error{Op: fmt.Sprintf("strategy: state %q", v.path), Reason: "its annotation does not fit",
				Err: err, Class: errkind.ValueError}
		}
		if _, err := v.layout(); err != nil {
			return nil, err
		}
		variables[i], layouts = v, append(layouts, v.annotation)
		key.WriteString(" " + shape.String())
	}
	if s.slice == nil {
		zeros, err := builtinCall{name: "zeros" + key.String(), results: layouts,
			step: func(rc *ReplicaContext, _ []*graph.Node) (nodes []*graph.Node) {
				for _, shape := range types {
					nodes = append(nodes, graph.Zeros(rc.graph, shape))
				}
				return nodes
			}}.run(ctx, s)
		if err != nil {
			return nil, err
		}
		for i, v := range variables {
			v.buffers = zeros[i].base().takeBuffers()
		}
	}
	return variables, s.registerVariables(variables...)
}

// LockVariables locks the variables of a store, to load values into them. unlock ends it. Calls with
// the returned context have the lock.
func (m internalStrategy) LockVariables(ctx context.Context, store *model.Store) (locked context.Context,
	unlock func(), err error) {
	if err := m.CheckUsable(ctx, "loading variables"); err != nil {
		return nil, nil, err
	}
	return m.Variables(store).lock(ctx, "")
}

// LoadVariables assigns values to all variables or to none. readers is the number of parts that are
// read concurrently. Each process reads the parts of its devices while they keep the old values. Then
// LoadVariables calls check, unless it is nil, and replaces the old values if check returns no error.
// The host uses memory for a sixteenth of its devices' bytes, or for a single part that is larger;
// staged is the maximum in bytes. No step may be launched meanwhile.
func (m internalStrategy) LoadVariables(ctx context.Context, variables []*Variable, src []lazytensor.Reader, readers int,
	check func(context.Context) error) (staged int, err error) {
	if err := m.CheckUsable(ctx, "loading variables"); err != nil {
		return 0, err
	}
	return m.loadValues(ctx, variables, src, readers, check)
}

// HasMemoryFor reports whether the devices have free memory for a second set of values of the
// variables. It returns true if the plugin does not report its free memory, because such a plugin uses
// host memory.
func (m internalStrategy) HasMemoryFor(variables []*Variable) bool {
	need := int64(0) // bytes per device
	for _, v := range variables {
		if v.pending.Load() == nil {
			need += int64(v.BytesPerDevice())
		}
	}
	free, known := m.runtime.FreeBytes()
	return need == 0 || !known || free > need
}

// WithBuffers waits for running steps and calls f with a consistent set of the variables' layouts and
// buffers. Buffers that f returns replace the old ones.
func (m internalStrategy) WithBuffers(ctx context.Context, op string, variables []*Variable,
	f func(layouts []*engine.Layout, old []engine.Buffers) (fresh []engine.Buffers, err error)) error {
	if err := m.CheckUsable(ctx, op); err != nil {
		return err
	}
	if err := initVariables(ctx, variables...); err != nil {
		return err
	}
	m.runtime.Launch.Lock()
	defer m.runtime.Launch.Unlock()
	layouts, old := make([]*engine.Layout, len(variables)), make([]engine.Buffers, len(variables))
	for i, v := range variables {
		if i > 0 && v == variables[i-1] { // another shard of the same variable
			layouts[i], old[i] = layouts[i-1], old[i-1]
			continue
		}
		err := v.checkOpen()
		if err == nil {
			layouts[i], err = v.layout()
		}
		if err == nil {
			err = waitReady(ctx, v.buffers)
		}
		if err != nil {
			return v.wrapError(err)
		}
		old[i] = v.buffers
	}
	fresh, err := f(layouts, old)
	for i := range fresh {
		err = errors.Join(err, variables[i].replaceBuffers(fresh[i]))
	}
	return err
}
