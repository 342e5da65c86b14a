package strategy

import (
	"context"

	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/core/tensors"

	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/strategy/internal/inside"
)

// What package strategy gives to its neighbours beside its contract, by package inside: to
// strategy/eager, strategy/train, strategy/stepfile, strategy/generate and strategy/feed. Their
// interfaces say what the methods do.

func init() {
	inside.Serve(func(x any) any {
		switch x := x.(type) {
		case *TPUStrategy:
			return innerStrategy{x}
		case *ReplicaContext:
			return innerContext{x}
		case *Function:
			return innerFunction{x}
		case *Compiled:
			return innerCompiled{x}
		}
		return nil
	})
}

// innerStrategy is the inner face of a strategy: the R x P machine below the contract.
type innerStrategy struct{ *TPUStrategy }

// Contexts: which code runs.

func (m innerStrategy) RequireCross(ctx context.Context, op string) error {
	return m.requireCross(ctx, op)
}
func (m innerStrategy) RequireEager(ctx context.Context, op, instead string) error {
	return m.requireEager(ctx, op, instead)
}

// CrossTracing returns the [tracing] of the merge call that ctx belongs to, or nil.
func (m innerStrategy) CrossTracing(ctx context.Context, op string) (trace any, err error) {
	t, err := m.crossTracing(ctx, op)
	if t == nil { // an interface of no trace is not nil
		return nil, err
	}
	return t, nil
}

func (m innerStrategy) Within(ctx context.Context, replica bool, update int, code any) context.Context {
	return withMode(ctx, mode{strategy: m.TPUStrategy, replica: replica, update: update, code: code})
}

// WithinTracedUpdate returns the trace of an update's function, whose code is a [component], and
// ctx, which is a merge call's, as its context.
func (m innerStrategy) WithinTracedUpdate(ctx context.Context, code any) (trace any, _ context.Context) {
	t := tracingOf(ctx)
	inner := &tracing{rc: t.rc, merge: t.merge, updating: true}
	return inner, withTracing(m.Within(ctx, false, -1, code), inner)
}

// Code returns the code that ctx belongs to, or nil.
func (m innerStrategy) Code(ctx context.Context) any {
	of, _ := modeOf(ctx)
	return of.code
}

func (m innerStrategy) Column(ctx context.Context) int { return columnOf(ctx) }

// Beside returns ctx with the logical device that new variables go to, or with the variable whose
// place they take, if there is one.
func (m innerStrategy) Beside(ctx context.Context, k int, v *Variable) context.Context {
	if v != nil {
		k = v.column
	}
	return context.WithValue(context.WithValue(ctx, columnKey{}, k), colocateKey{}, v)
}

func (m innerStrategy) DeviceName(replica, logicalDevice int) string {
	return m.deviceName(replica, logicalDevice)
}
func (m innerStrategy) DevicesPerHost() int         { return m.machine.Topology().NumTPUsPerTask() }
func (m innerStrategy) HostName(replica int) string { return m.hostName(replica) }

// Values: what callers give, and what lives on the devices.

func (m innerStrategy) Check() error                { return m.check() }
func (m innerStrategy) Owns(op string, x any) error { return m.ownsLeaf(op, x) }
func (m innerStrategy) Lifts(x any) bool            { return m.lifts(x) }

// Take brings the value that a caller gave to the strategy: a tensor of this process, or a value on
// the devices. release closes a value that was made for the call.
func (m innerStrategy) Take(ctx context.Context, op string, x any) (host *tensors.Tensor, value Value, release func() error, err error) {
	if err := m.taking(op, x); err != nil {
		return nil, nil, nil, err
	}
	t, err := m.take(ctx, op, x)
	return t.host, t.value, t.release, err
}

func (m innerStrategy) TakeMirrored(ctx context.Context, op string, x any, a logical.Annotation) (v *Mirrored, made bool, err error) {
	return m.takeMirrored(ctx, op, x, a)
}
func (m innerStrategy) Host(x any) (*tensors.Tensor, error) { return hostTensor(x) }
func (m innerStrategy) PerReplicaOf(ctx context.Context, all []*tensors.Tensor, a logical.Annotation) (*PerReplica, error) {
	return m.perReplicaOf(ctx, all, a)
}
func (m innerStrategy) Component(v Value, replica int) *Component { return m.component(v, replica) }
func (m innerStrategy) Parts(x *Merged) ([]any, error)            { return x.localResults() }
func (m innerStrategy) Ragged(v Value) [][]int                    { return v.base().ragged }
func (m innerStrategy) Sizes(ctx context.Context, v Value) (*PerReplica, error) {
	return m.sizesOf(ctx, v.base())
}
func (m innerStrategy) Mark(v Value, ragged [][]int, equal bool) {
	v.base().ragged, v.base().equal = ragged, equal
}
func (m innerStrategy) ToHost(ctx context.Context, v *Mirrored) (*tensors.Tensor, error) {
	return m.toHost(ctx, v)
}
func (m innerStrategy) Keep(v *Mirrored, only []bool) error { return v.keep(only) }
func (m innerStrategy) Snapshot(ctx context.Context, v *Variable) (Value, error) {
	return v.snapshot(ctx)
}
func (m innerStrategy) ScatterRule(v *Variable, op ScatterOp, inStep bool) error {
	return v.scatterRule(op, inStep)
}
func (m innerStrategy) ScatterShapes(v *Variable, name string, indices, updates shapes.Shape) error {
	return v.scatterShapes(name, indices, updates)
}

// Programs.

// Call runs a small program over values and variables. It is compiled once for each name and each
// kind of value and variable. Results are split as results say; mirrored ones are the same on every
// replica. The step writes the variables by their position, as [innerContext.Set] does.
func (m innerStrategy) Call(ctx context.Context, name string, step StepFunc, values []Value, variables []*Variable, mirrored bool, results ...logical.Annotation) ([]Value, error) {
	return m.call(ctx, builtinCall{name: name, values: values, variables: variables, mirrored: mirrored, results: results,
		step: func(rc *ReplicaContext, held []*captured, in []*graph.Node) []*graph.Node {
			rc.held = held
			return step(rc, in)
		}})
}

func (m innerStrategy) CheckReduce(op ReduceOp, call string) error { return op.check(call) }

func (m innerStrategy) ReduceNests(ctx context.Context, op ReduceOp, call string, nests []any, layouts []func(dims []int, otherwise logical.Annotation) logical.Annotation) ([]any, error) {
	return m.reduceNests(ctx, op, call, nests, layouts)
}

func (m innerStrategy) ReduceAlong(ctx context.Context, op ReduceOp, x any, axes []int) (any, error) {
	return m.reduceLeaf(ctx, op, x, axes)
}
func (m innerStrategy) Guard(function string, f func() ([]any, error)) ([]any, error) {
	return guarded(function, f)
}

// innerContext is the inner face of a replica's context.
type innerContext struct{ *ReplicaContext }

func (m innerContext) Aggregate(op string, i int, x *graph.Node) *graph.Node {
	return m.aggregate(op, m.held[i].variable, x)
}
func (m innerContext) Set(op string, i int, x *graph.Node, apply func(old, x *graph.Node) *graph.Node) *graph.Node {
	return m.set(op, m.held[i], x, apply)
}

// ScatterRows combines rows of a held variable, which are aggregated already, or are aggregated as
// it says.
func (m innerContext) ScatterRows(op ScatterOp, i int, indices, updates *graph.Node, aggregate bool) *graph.Node {
	if aggregate {
		return m.Scatter(op, m.held[i].variable, indices, updates)
	}
	return m.scatter(op, m.held[i], indices, updates)
}

func (m innerContext) RealRows(indices, sizes *graph.Node) *graph.Node {
	return realRows(indices, sizes)
}
func (m innerContext) MeanOfIntegers(x *graph.Node) *graph.Node {
	return meanOfIntegers(x, m.strategy.replicas)
}
