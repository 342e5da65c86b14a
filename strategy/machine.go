package strategy

import (
	"context"

	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/core/tensors"

	"github.com/tpustrategy/tpustrategy/input"
	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/tpu"
)

// machine is the R x P machine below the strategy's contract, for the packages of this module that
// stand on it: strategy/eager, strategy/train, strategy/stepfile and strategy/feed. Its methods are
// theirs alone, so that what they need is not part of the contract that everybody reads.
type machine TPUStrategy

// Machine returns what this module's own packages use of the strategy beside its contract. It is
// not part of the contract, and changes without notice.
func (s *TPUStrategy) Machine() *machine { return (*machine)(s) }

func (m *machine) strategy() *TPUStrategy { return (*TPUStrategy)(m) }

// Contexts: which code runs.

// RequireCross refuses a replica's code and other strategies' scopes.
func (m *machine) RequireCross(ctx context.Context, op string) error {
	return m.strategy().requireCross(ctx, op)
}

// RequireEager refuses what RequireCross refuses, and a step that is being traced.
func (m *machine) RequireEager(ctx context.Context, op, instead string) error {
	return m.strategy().requireEager(ctx, op, instead)
}

// RequireScope refuses every context but that of the strategy's own scope.
func (m *machine) RequireScope(ctx context.Context, op string) error {
	return m.strategy().requireScope(ctx, op)
}

// Untraced refuses the contexts of steps that are being traced.
func (m *machine) Untraced(ctx context.Context, op, instead string) error {
	return untraced(ctx, op, instead)
}

// CrossTracing returns the trace whose merge call ctx belongs to, or nil: the call is to build
// graph.
func (m *machine) CrossTracing(ctx context.Context, op string) (*tracing, error) {
	return m.strategy().crossTracing(ctx, op)
}

// Across returns ctx in the strategy's cross-replica context, in the update of a component if
// update is one.
func (m *machine) Across(ctx context.Context, update int) context.Context {
	return withMode(ctx, mode{strategy: m.strategy(), update: update})
}

// InReplica returns ctx as that of a replica's code.
func (m *machine) InReplica(ctx context.Context, code any) context.Context {
	return withMode(ctx, mode{strategy: m.strategy(), replica: true, code: code, update: -1})
}

// InUpdate returns ctx as that of the function of an update of component number update.
func (m *machine) InUpdate(ctx context.Context, update int, c component) context.Context {
	return withMode(ctx, mode{strategy: m.strategy(), update: update, component: c})
}

// InTracedUpdate returns the trace of an update's function, whose code is c, and ctx, which is a
// merge call's, as its context.
func (m *machine) InTracedUpdate(ctx context.Context, c component) (*tracing, context.Context) {
	t := tracingOf(ctx)
	inner := &tracing{rc: t.rc, merge: t.merge, updating: true}
	return inner, withTracing(withMode(ctx, mode{strategy: m.strategy(), update: -1, component: c}), inner)
}

// ReplicaCode returns the replica's code that ctx belongs to, or nil.
func (m *machine) ReplicaCode(ctx context.Context) any {
	of, _ := modeOf(ctx)
	return of.code
}

// InReplicaCode reports whether ctx is of one replica's code.
func (m *machine) InReplicaCode(ctx context.Context) bool {
	of, ok := modeOf(ctx)
	return ok && of.replica
}

// Column returns the logical device that ctx names, or 0.
func (m *machine) Column(ctx context.Context) int { return columnOf(ctx) }

// OnLogicalDevice returns ctx with the logical device that new variables go to.
func (m *machine) OnLogicalDevice(ctx context.Context, k int) context.Context {
	return context.WithValue(context.WithValue(ctx, columnKey{}, k), colocateKey{}, (*Variable)(nil))
}

// Beside returns ctx with the variable that new ones go to.
func (m *machine) Beside(ctx context.Context, v *Variable) context.Context {
	return context.WithValue(context.WithValue(ctx, columnKey{}, v.column), colocateKey{}, v)
}

// DeviceName returns TensorFlow's name of a logical device of a replica.
func (m *machine) DeviceName(replica, logicalDevice int) string {
	return m.strategy().deviceName(replica, logicalDevice)
}

// Topology returns where the devices are, also those of a described slice.
func (m *machine) Topology() tpu.Topology { return m.machine.Topology() }

// HostName returns TensorFlow's name of a replica's host.
func (m *machine) HostName(replica int) string { return m.strategy().hostName(replica) }

// Values: what callers give, and what lives on the devices.

// Check returns [ErrClosed] if the strategy is closed.
func (m *machine) Check() error { return m.strategy().check() }

// Owns refuses nil, and a value or a variable of another strategy.
func (m *machine) Owns(op string, x any) error {
	if v, ok := x.(*Variable); ok {
		return m.strategy().ownsVariable(op, v)
	}
	return m.strategy().ownsLeaf(op, x)
}

// OwnsValue refuses nil, and a value of another strategy.
func (m *machine) OwnsValue(v Value) error { return m.strategy().owns(v) }

// Takes refuses a leaf that [machine.Take] cannot bring to the strategy.
func (m *machine) Takes(op string, x any) error { return m.strategy().taking(op, x) }

// Lifts reports whether a call that takes a value takes x in its place.
func (m *machine) Lifts(x any) bool { return m.strategy().lifts(x) }

// Take brings the value that a caller gave to the strategy: a tensor of this process, or a value on
// the devices. release closes a value that was made for the call.
func (m *machine) Take(ctx context.Context, op string, x any) (host *tensors.Tensor, value Value, release func() error, err error) {
	t, err := m.strategy().take(ctx, op, x)
	return t.host, t.value, t.release, err
}

// TakeMirrored is Take of what is one value for all replicas, as a value on the devices. made says
// that the value was made for the call, which closes it.
func (m *machine) TakeMirrored(ctx context.Context, op string, x any, a logical.Annotation) (v *Mirrored, made bool, err error) {
	return m.strategy().takeMirrored(ctx, op, x, a)
}

// Host makes a tensor of a host value.
func (m *machine) Host(x any) (*tensors.Tensor, error) { return hostTensor(x) }

// NoTensor returns the error of a call whose value is no tensor, as Host says.
func (m *machine) NoTensor(op string, err error) error { return noTensor(op, err) }

// Hosts makes tensors of the replicas' host values.
func (m *machine) Hosts(op string, values []any) ([]*tensors.Tensor, error) {
	return m.strategy().hostTensors(op, values)
}

// PerReplica copies the replicas' tensors to the devices, whose shapes may differ.
func (m *machine) PerReplica(ctx context.Context, all []*tensors.Tensor, a logical.Annotation) (*PerReplica, error) {
	return m.strategy().perReplicaOf(ctx, all, a)
}

// Component returns a replica's part of a value.
func (m *machine) Component(v Value, replica int) *Component {
	return m.strategy().component(v, replica)
}

// Parts returns the replicas' parts of a merged value.
func (m *machine) Parts(x *Merged) ([]any, error) { return x.localResults() }

// Ragged returns the shapes of a value's replicas if they differ, otherwise nil.
func (m *machine) Ragged(v Value) [][]int { return v.base().ragged }

// SetRagged notes that the shapes of a value's replicas differ.
func (m *machine) SetRagged(v Value, ragged [][]int) { v.base().ragged = ragged }

// Sizes returns the real sizes of a value whose replicas' shapes differ, for a program.
func (m *machine) Sizes(ctx context.Context, v Value) (*PerReplica, error) {
	return m.strategy().sizesOf(ctx, v.base())
}

// Differs reports whether the replicas' tensors of a value may be different.
func (m *machine) Differs(v Value) bool { return v.base().differs() }

// ComponentsDiffer reports whether the components of a variable may be different.
func (m *machine) ComponentsDiffer(v *Variable) bool { return v.perReplica() }

// SetEqual notes whether the replicas' tensors of a value are known to be the same.
func (m *machine) SetEqual(v Value, equal bool) { v.base().equal = equal }

// ToHost copies a value that is the same on all replicas to the host.
func (m *machine) ToHost(ctx context.Context, v *Mirrored) (*tensors.Tensor, error) {
	return m.strategy().toHost(ctx, v)
}

// Keep releases a value on all devices but those of some partitions.
func (m *machine) Keep(v *Mirrored, only []bool) error { return v.keep(only) }

// Snapshot copies a variable's components on the devices.
func (m *machine) Snapshot(ctx context.Context, v *Variable) (Value, error) { return v.snapshot(ctx) }

// ScatterRule refuses a scatter that the variable does not have.
func (m *machine) ScatterRule(v *Variable, op ScatterOp, inStep bool) error {
	return v.scatterRule(op, inStep)
}

// ScatterShapes refuses rows that do not fit the variable.
func (m *machine) ScatterShapes(v *Variable, name string, indices, updates shapes.Shape) error {
	return v.scatterShapes(name, indices, updates)
}

// Programs.

// Call runs a small program over values and variables. It is compiled once for each name and each
// kind of value and variable. Results are split as results say; mirrored ones are the same on every
// replica. The step writes the variables by their position, as [replicaMachine.Set] does.
func (m *machine) Call(ctx context.Context, name string, step StepFunc, values []Value, variables []*Variable, mirrored bool, results ...logical.Annotation) ([]Value, error) {
	return m.strategy().call(ctx, builtinCall{name: name, values: values, variables: variables, mirrored: mirrored, results: results,
		step: func(rc *ReplicaContext, held []*captured, in []*graph.Node) []*graph.Node {
			rc.held = held
			return step(rc, in)
		}})
}

// CheckReduce refuses an unknown reduction.
func (m *machine) CheckReduce(op ReduceOp, call string) error { return op.check(call) }

// ReduceNests reduces the leaves of nests in one program. layouts say how the results are split
// over the logical devices.
func (m *machine) ReduceNests(ctx context.Context, op ReduceOp, call string, nests []any, layouts []func(dims []int, otherwise logical.Annotation) logical.Annotation) ([]any, error) {
	return m.strategy().reduceNests(ctx, op, call, nests, layouts)
}

// ReduceAlong reduces a value, a variable or a host value along axes.
func (m *machine) ReduceAlong(ctx context.Context, op ReduceOp, x any, axes []int) (any, error) {
	return m.strategy().reduceLeaf(ctx, op, x, axes)
}

// Tensors copies a tensor of package input for each replica of this process from where it lies.
// Ragged ones may differ in shape, and are for one process.
func (m *machine) Tensors(ctx context.Context, values []input.Tensor, a logical.Annotation, ragged bool) (*PerReplica, error) {
	if ragged {
		return m.strategy().raggedTensors(ctx, values, a)
	}
	return m.strategy().localTensors(ctx, values, a)
}

// Guard calls a user's function; a panic of it is a [*PanicError].
func (m *machine) Guard(function string, f func() ([]any, error)) ([]any, error) {
	return guarded(function, f)
}

// replicaMachine is the part of a replica context that this module's own packages use.
type replicaMachine ReplicaContext

// Machine returns what this module's own packages use of the context beside the contract. It is not
// part of the contract, and changes without notice.
func (rc *ReplicaContext) Machine() *replicaMachine { return (*replicaMachine)(rc) }

func (m *replicaMachine) context() *ReplicaContext { return (*ReplicaContext)(m) }

// Aggregate combines the replicas' values of a write of a held variable as it says.
func (m *replicaMachine) Aggregate(op string, i int, x *graph.Node) *graph.Node {
	return m.context().aggregate(op, m.held[i].variable, x)
}

// Set writes a held variable; x is aggregated already.
func (m *replicaMachine) Set(op string, i int, x *graph.Node, apply func(old, x *graph.Node) *graph.Node) *graph.Node {
	return m.context().set(op, m.held[i], x, apply)
}

// Scatter combines rows of a held variable, which are aggregated already, or are aggregated as it
// says.
func (m *replicaMachine) Scatter(op ScatterOp, i int, indices, updates *graph.Node, aggregate bool) *graph.Node {
	if aggregate {
		return m.context().Scatter(op, m.held[i].variable, indices, updates)
	}
	return m.context().scatter(op, m.held[i], indices, updates)
}

// RealRows replaces the row numbers of padding by numbers that name no row.
func (m *replicaMachine) RealRows(indices, sizes *graph.Node) *graph.Node {
	return realRows(indices, sizes)
}

// MeanOfIntegers returns the mean over the replicas.
func (m *replicaMachine) MeanOfIntegers(x *graph.Node) *graph.Node {
	return m.context().meanOfIntegers(x)
}

// IsNil reports whether a value is nil, or a nil pointer.
func (m *machine) IsNil(v Value) bool { return isNil(v) }
