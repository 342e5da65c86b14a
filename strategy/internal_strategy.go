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

// strategyAccess lets other packages of this module call the methods of internalStrategy, with
// [engine.Internal].
type strategyAccess = engine.Access[internalStrategy]

// internalStrategy has methods of a strategy that are not part of the public API. Only packages of
// this module call them. The field TPUStrategy is nil for a strategy that New did not create.
type internalStrategy struct{ *TPUStrategy }

// CheckUsable returns an error while a step is traced, if the strategy is closed, or if it has no
// devices.
func (m internalStrategy) CheckUsable(ctx context.Context, op string) error {
	if err := RefuseTracing(ctx, op, fault.InsteadOfMeeting); err != nil {
		return err
	}
	if err := m.checkRunnable(op); err != nil {
		return err
	}
	return m.checkOpen()
}

// CheckCrossReplica returns an error if ctx belongs to replica code or to the scope of another
// strategy.
func (m internalStrategy) CheckCrossReplica(ctx context.Context, op string) error {
	return m.requireCross(ctx, op)
}

// CheckEager returns the errors of CheckCrossReplica. While a step is traced, it returns an error
// with a hint for the user, which the parameter instead contains.
func (m internalStrategy) CheckEager(ctx context.Context, op, instead string) error {
	return m.requireEager(ctx, op, instead)
}

func (m internalStrategy) CheckOpen() error { return m.checkOpen() }

// CheckVariable returns an error if a variable is closed or belongs to another strategy.
func (m internalStrategy) CheckVariable(v *Variable) error {
	if err := v.checkOwnedBy(m.TPUStrategy, "load step"); err != nil {
		return err
	}
	m.runtime.Launch.Lock()
	defer m.runtime.Launch.Unlock()
	return v.checkOpen()
}

func (m internalStrategy) CheckScatter(v *Variable, op ScatterOp, inStep bool) error {
	return v.checkScatter(op, inStep)
}

// MergeCall returns the merge call of package eager that ctx belongs to, or nil.
func (m internalStrategy) MergeCall(ctx context.Context, op string) (code any, err error) {
	return m.mergeCall(ctx, op)
}

// NextCallNumber numbers the eager calls in which all processes take part, starting with 1.
func (m internalStrategy) NextCallNumber() uint64 { return m.sequence.Add(1) }

// DeviceNames returns TensorFlow's names of each replica's logical devices, TensorFlow's name of
// each replica's host, and the number of devices of a host.
func (m internalStrategy) DeviceNames() (devices [][]string, hosts []string, devicesPerHost int) {
	for r := range m.replicas {
		names, host := m.deviceNames(r)
		devices, hosts = append(devices, names), append(hosts, host)
	}
	return devices, hosts, m.runtime.Topology().NumTPUsPerTask()
}

func (m internalStrategy) Logger() *slog.Logger { return m.opts.Logger }

func (m internalStrategy) Runtime() *engine.Runtime { return m.runtime }

// StartGather starts the exchange of [TPUStrategy.GatherBytes] and does not wait for its result.
// The exchange is launched like a step. The name and the message together have at most 497 bytes.
func (m internalStrategy) StartGather(ctx context.Context, name string, message []byte) (*engine.GatherFuture, error) {
	if err := m.CheckUsable(ctx, "gather "+name); err != nil {
		return nil, err
	}
	return m.runtime.StartGather(ctx, "gather "+name, message)
}

// RunBuiltin runs a program of this module on values and variables. It compiles the program once
// for each name, shapes, dtypes and layouts. results are the annotations of the results; mirrored
// results are equal on all replicas. Cached programs refer to variables by position, so calls that
// pass a variable twice need another name than calls that do not.
func (m internalStrategy) RunBuiltin(ctx context.Context, name string, step StepFunc, values []Value,
	variables []*Variable, mirrored bool, results ...logical.Annotation) ([]Value, error) {
	return builtinCall{name: name, values: values, variables: variables, mirrored: mirrored, results: results,
		step: step}.run(ctx, m.TPUStrategy)
}

// NewTrainingFunction creates a function that uses all variables of its store and whose results are
// equal on all replicas. microbatches is the number of microbatches; 0 means 1. paddedRows returns
// the padded number of rows of each microbatch, or 0 without padding.
func (m internalStrategy) NewTrainingFunction(step StepFunc, opts FunctionOptions, microbatches int,
	paddedRows func(arguments []Value) int) *Function {
	opts.mirroredResults = true
	f := m.Function(step, opts)
	f.usesAllVariables, f.microbatches, f.paddedMicrobatchRows = true, max(microbatches, 1), paddedRows
	return f
}

// SetTrainingCheck sets a function that checks the graph of each training step. It must be called
// before the first trace.
func (m internalStrategy) SetTrainingCheck(check func(g *graph.Graph) error) { m.checkTraining = check }

// ShardsState reports whether a rule of the strategy shards training state over the replicas.
func (m internalStrategy) ShardsState() bool { return m.shardsState }

// IsMirrored reports whether a variable has the same value on all replicas.
func (m internalStrategy) IsMirrored(v *Variable) bool {
	return !v.perReplica() && !v.replicaShard.IsSharded()
}

// NewMetricState creates the variable in which a function accumulates n metrics. The variable has
// shape [n, 2], with a sum and a weight for each metric. Each replica has its own component. The
// initial zeros are copied to the devices before the first run.
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

// NewZeroVariables creates variables that have a component of zeros for each replica. opts provides
// their annotations, and their names for errors and reports. The variables are not listed:
// checkpoints, rules and optimizers ignore them. Close releases a variable. Ahead of time the
// variables have no contents.
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

// LockVariables locks the variables of a store while values are loaded. Calls with the returned
// context can use the variables; other calls wait until unlock is called.
func (m internalStrategy) LockVariables(ctx context.Context, store *model.Store) (locked context.Context,
	unlock func(), err error) {
	if err := m.CheckUsable(ctx, "loading variables"); err != nil {
		return nil, nil, err
	}
	return m.Variables(store).lock(ctx, "")
}

// LoadVariables assigns values to all variables or to none. Each process reads from src the parts
// for its devices, with the given number of concurrent readers. In the meantime the devices keep
// the old values, and no step may be launched. Then LoadVariables calls check, if it is not nil,
// and replaces the old values if check returns no error. It stages at most a sixteenth of the bytes
// of the process's devices in host memory, or the largest part if that is larger. The result staged
// is the maximum in bytes.
func (m internalStrategy) LoadVariables(ctx context.Context, variables []*Variable, src []lazytensor.Reader,
	readers int,
	check func(context.Context) error) (staged int, err error) {
	if err := m.CheckUsable(ctx, "loading variables"); err != nil {
		return 0, err
	}
	return m.loadValues(ctx, variables, src, readers, check)
}

// HasMemoryFor reports whether the devices have enough free memory for a second copy of the
// variables. It returns true if the plugin does not report its free memory, because the memory of
// such a plugin is host memory.
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

// WithBuffers waits for running steps and calls f with the layouts and buffers of the variables,
// which cannot change during the call. The buffers that f returns replace the old buffers.
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
