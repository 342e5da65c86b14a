package strategy

import (
	"cmp"
	"context"
	"errors"

	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/core/tensors"
	"github.com/gomlx/gomlx/ml/model"

	"github.com/tpustrategy/tpustrategy/internal/engine/fault"
	"github.com/tpustrategy/tpustrategy/internal/engine/inside"
	"github.com/tpustrategy/tpustrategy/internal/engine/lazy"
	"github.com/tpustrategy/tpustrategy/internal/mesh"
	"github.com/tpustrategy/tpustrategy/logical"
)

// The internal API of package strategy, for strategy/eager, strategy/train, strategy/stepfile,
// lm/generate and strategy/feed. They access it through package inside. Their interfaces document
// the methods.

func init() {
	inside.Serve(func(x any) any {
		switch x := x.(type) {
		case *TPUStrategy:
			return innerStrategy{x}
		case *ReplicaContext:
			return innerContext{x}
		case *Function:
			return innerFunction{x}
		case *CompiledStep:
			return innerStep{x}
		case Value:
			return innerValue{x.base()}
		}
		return nil
	})
}

// SetPaths sets the names of the arguments in errors.
func (m innerFunction) SetPaths(paths []string) { m.paths = paths }

// innerStrategy is the internal API of a strategy.
type innerStrategy struct{ *TPUStrategy }

func (m innerStrategy) Usable(ctx context.Context, op string) error {
	if err := RefuseTracing(ctx, op, fault.InsteadOfMeeting); err != nil {
		return err
	}
	if err := m.runnable(op); err != nil {
		return err
	}
	return m.check()
}

func (m innerStrategy) RequireCross(ctx context.Context, op string) error {
	return m.requireCross(ctx, op)
}
func (m innerStrategy) RequireEager(ctx context.Context, op, instead string) error {
	return m.requireEager(ctx, op, instead)
}
func (m innerStrategy) MergeCall(ctx context.Context, op string) (code any, err error) {
	return m.mergeCall(ctx, op)
}
func (m innerStrategy) Check() error { return m.check() }

func (m innerStrategy) Names() (devices [][]string, hosts []string, perHost int) {
	for r := range m.replicas {
		names, host := m.names(r)
		devices, hosts = append(devices, names), append(hosts, host)
	}
	return devices, hosts, m.machine.Topology().NumTPUsPerTask()
}

// Values: arguments of callers, and values on the devices.

func (m innerStrategy) Live(v *Variable) error {
	if err := v.ownedBy(m.TPUStrategy, "load step"); err != nil {
		return err
	}
	m.machine.Launch.Lock()
	defer m.machine.Launch.Unlock()
	return v.live()
}

func (m innerStrategy) Owns(op string, x any) error { return operandOf(x).ownedBy(m.TPUStrategy, op) }

func (m innerStrategy) CheckLeaf(x any) (reason string, err error) {
	switch x := x.(type) {
	case Value:
		if isNil(x) {
			break // the function reports it
		}
		if _, err := x.base().live(); errors.Is(err, ErrClosed) {
			return "closed", err
		}
	case *Variable:
		if x == nil {
			return "no variable: a nil pointer", nil
		}
		if _, ok := partitionsIn(m.machine, x.strategy.machine); x.strategy != m.TPUStrategy && !ok {
			return "a variable of another strategy", x.ownedBy(m.TPUStrategy, "run")
		}
	case part:
		if operandOf(x).kind == noOperand {
			return "no component: a nil pointer, or a component of nothing", nil
		}
	}
	return "", nil
}

// Batch is like [TPUStrategy.PerReplica], and marks the value as a batch.
func (m innerStrategy) Batch(ctx context.Context, values []any, a logical.Annotation) (*PerReplica, error) {
	v, err := m.PerReplica(ctx, values, a)
	if err == nil {
		v.batch = true
	}
	return v, err
}

func (m innerStrategy) Indirect(x any) bool { return operandOf(x).indirect(m.TPUStrategy) }

func (m innerStrategy) Resolve(ctx context.Context, op string, x any) (host *tensors.Tensor, value Value, release func() error, err error) {
	c, err := operandOf(x).resolve(ctx, m.TPUStrategy, op)
	return c.host, c.value, c.release, err
}

func (m innerStrategy) ResolveMirrored(ctx context.Context, op string, x any) (v *Mirrored, release func() error, err error) {
	c, err := operandOf(x).resolveMirrored(ctx, m.TPUStrategy, op)
	if err != nil {
		return nil, nil, err
	}
	return c.value.(*Mirrored), c.release, nil
}

func (m innerStrategy) PerReplicaOf(ctx context.Context, all []*tensors.Tensor, of []shapes.Shape, a logical.Annotation) (*PerReplica, error) {
	return batchShare{TPUStrategy: m.TPUStrategy, annotation: a}.putShapes(ctx, all, of)
}

func (m innerStrategy) ObjectsOf(values []any) *Objects {
	o := NewObjects(values...)
	o.local = m.LocalReplicas()
	return o
}

func (m innerStrategy) ObjectAt(o *Objects, replica int) (any, error) { return o.at(replica) }

func (m innerStrategy) NextSequence() uint64 { return m.sequence.Add(1) }
func (m innerStrategy) ToHost(ctx context.Context, v *Mirrored) (*tensors.Tensor, error) {
	return v.toHost(ctx)
}
func (m innerStrategy) ScatterRule(v *Variable, op ScatterOp, inStep bool) error {
	return v.scatterRule(op, inStep)
}
func (m innerStrategy) Ragged(v Value) [][]int { return v.base().ragged }

// Programs.

// Call runs a small program with values and variables. It is compiled once for each name and
// signature. results are the annotations of the results; mirrored results are equal on every
// replica. A cached program reads and writes the variables by position, so the name must identify
// variables that are passed twice.
func (m innerStrategy) Call(ctx context.Context, name string, step StepFunc, values []Value, variables []*Variable, mirrored bool, results ...logical.Annotation) ([]Value, error) {
	return builtinCall{name: name, values: values, variables: variables, mirrored: mirrored, results: results, step: step}.run(ctx, m.TPUStrategy)
}

func (m innerStrategy) Reduction(op ReduceOp, x any) (how byte, err error) {
	var base *deviceValue
	if v, ok := x.(*Variable); !ok {
		base = x.(Value).base()
	} else if base = v.value(); v.localWrites && op == Mean {
		return byte(reduceFirst), nil // the value of a mirrored variable is the value of replica 0
	}
	of, err := base.reduction(op)
	return byte(of), err
}

// innerValue is the internal API of a value.
type innerValue struct{ *deviceValue }

func (m innerValue) Ragged() [][]int { return m.ragged }
func (m innerValue) Sizes(ctx context.Context) (*PerReplica, error) {
	return m.deviceValue.sizes(ctx)
}
func (m innerValue) Mark(ragged [][]int, equal bool) { m.ragged, m.equal = ragged, equal }
func (m innerValue) Keep(only []bool) error          { return m.keep(only) }
func (m innerValue) Origin() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.origin
}
func (m innerValue) SetOrigin(origin string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.origin = cmp.Or(m.origin, origin)
}

// For packages strategy/checkpoint, lm/pretrained and fit/interrupt.

func (m innerStrategy) Turn(ctx context.Context, store *model.Store) (held context.Context, done func(), err error) {
	if err := m.Usable(ctx, "loading variables"); err != nil {
		return nil, nil, err
	}
	return m.Variables(store).exclusive(ctx, "")
}

func (m innerStrategy) Fill(ctx context.Context, variables []*Variable, from []lazy.Parts, readers int, check func(context.Context) error) (staged int, err error) {
	if err := m.Usable(ctx, "loading variables"); err != nil {
		return 0, err
	}
	return m.fill(ctx, variables, from, readers, check)
}

// Room reports whether the devices have free memory for a second set of values of the variables. It
// returns true if the plugin does not report its free memory, because such a plugin uses host
// memory.
func (m innerStrategy) Room(variables []*Variable) bool {
	need := int64(0) // bytes per device
	for _, v := range variables {
		if v.waiting.Load() == nil {
			need += int64(v.BytesPerDevice())
		}
	}
	free, known := m.machine.FreeBytes()
	return need == 0 || !known || free > need
}

func (m innerStrategy) Mesh() *mesh.Runtime { return m.machine }

func (m innerStrategy) Quiet(ctx context.Context, doing string, of []*Variable, f func(at []*mesh.Layout, held []mesh.Buffers) (fresh []mesh.Buffers, err error)) error {
	if err := m.Usable(ctx, doing); err != nil {
		return err
	}
	if err := arrive(ctx, of...); err != nil {
		return err
	}
	m.machine.Launch.Lock()
	defer m.machine.Launch.Unlock()
	at, held := make([]*mesh.Layout, len(of)), make([]mesh.Buffers, len(of))
	for i, v := range of {
		if i > 0 && v == of[i-1] { // another shard of the same variable
			at[i], held[i] = at[i-1], held[i-1]
			continue
		}
		err := v.live()
		if err == nil {
			at[i], err = v.layout()
		}
		if err == nil {
			err = ready(ctx, v.buffers)
		}
		if err != nil {
			return v.failed(err)
		}
		held[i] = v.buffers
	}
	fresh, err := f(at, held)
	for i := range fresh {
		err = errors.Join(err, of[i].swap(fresh[i]))
	}
	return err
}

func (m innerStrategy) Mirrors(v *Variable) bool { return !v.perReplica() && !v.over.IsSharded() }

// StartGather starts a [TPUStrategy.GatherBytes] without waiting for it; see
// [mesh.Runtime.StartGather].
func (m innerStrategy) StartGather(ctx context.Context, name string, mine []byte) (*mesh.GatherFuture, error) {
	if err := m.Usable(ctx, "gather "+name); err != nil {
		return nil, err
	}
	return m.machine.StartGather(ctx, "gather "+name, mine)
}

// innerContext is the internal API of a replica context.
type innerContext struct{ *ReplicaContext }

func (m innerContext) Aggregate(op string, v *Variable, x *graph.Node) *graph.Node {
	return m.aggregate(op, v, x)
}
func (m innerContext) Set(op string, v *Variable, x *graph.Node, apply func(old, x *graph.Node) *graph.Node) *graph.Node {
	return m.set(op, m.capture(op, v), x, apply)
}
func (m innerContext) ScatterRows(op ScatterOp, v *Variable, indices, updates *graph.Node) *graph.Node {
	return m.scatter(op, m.capture(op.String(), v), indices, updates)
}
func (m innerContext) First(x *graph.Node) *graph.Node { return m.first(x) }
func (m innerContext) Reduce(op ReduceOp, how byte, x *graph.Node) *graph.Node {
	return reduction(how).of(m.ReplicaContext, op, x)
}

func (m innerContext) MeanOfIntegers(x *graph.Node, axes ...int) *graph.Node {
	return m.meanOfIntegers("reduce", x, axes...)
}

func (m innerContext) InReplica(op string) { m.inReplica(op) }

func (m innerContext) Node(op string, v *Variable, x any) (node *graph.Node, host bool) {
	return m.node(op, v, operandOf(x))
}

func (m innerContext) Varying(nodes ...*graph.Node) []bool {
	varying, err := m.varying(nodes, true)
	if err != nil {
		panic(err)
	}
	return varying
}

func (m innerContext) Built() []*graph.Node {
	state := []*graph.Node{m.graph.LastNode()}
	for _, c := range m.captured {
		state = append(state, c.now)
	}
	return state
}

func (m innerFunction) RunStructured(ctx context.Context, args []any) (structure any, results []*PerReplica, err error) {
	p, results, err := m.run(ctx, args)
	if err != nil {
		return nil, nil, err
	}
	return p.structure, results, nil
}

// innerStep is the internal API of a compiled step.
type innerStep struct{ *CompiledStep }
