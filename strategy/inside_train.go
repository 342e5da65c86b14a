package strategy

import (
	"context"
	"slices"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/core/tensors"
	"github.com/gomlx/gomlx/ml/model"
	"golang.org/x/sync/semaphore"

	"github.com/tpustrategy/tpustrategy/internal/engine/saved"
	"github.com/tpustrategy/tpustrategy/internal/engine/stepstate"
	"github.com/tpustrategy/tpustrategy/internal/region"
	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/lowering/spmd"
)

// For packages strategy/train and strategy/stepfile; see inside.go.

func (m innerStrategy) TrainingFunction(step StepFunc, opts FunctionOptions, g guard, microbatches int, microbatch func(arguments []Value) int) *Function {
	opts.mirroredResults = true
	f := m.Function(step, opts)
	f.wholeModel, f.guard, f.microbatches, f.microbatch = true, g, max(microbatches, 1), microbatch
	return f
}

// CheckTraining sets a check for the graph of each function that trains. Set it before the first
// trace.
func (m innerStrategy) CheckTraining(check func(g *graph.Graph) error) { m.checkTraining = check }

func (m innerStrategy) Sharding() bool { return m.sharding }

func (m innerStrategy) Batched(v Value) bool { return v.base().perReplica }

func (m innerFunction) Arguments() []logical.Annotation { return slices.Clone(m.opts.Arguments) }

func (m innerFunction) Store() *model.Store { return m.opts.Store }

func (m innerFunction) Lookup(path string) (*Variable, bool) {
	if m.opts.Store == nil {
		return nil, false
	}
	return m.strategy.Variables(m.opts.Store).Lookup(path)
}

func (m innerFunction) ReadHere(ctx context.Context, v *Variable) (*tensors.Tensor, error) {
	s := m.strategy
	d := max(slices.Index(s.machine.Local, true), 0)
	return v.LocalShard(ctx, d/s.logicalDevices, d%s.logicalDevices)
}

func (m innerFunction) Loaded() *saved.Step { return m.loaded }

func (m innerFunction) Guard() guard     { return m.guard }
func (m innerFunction) SetGuard(g guard) { m.guard = g }

func (m innerFunction) Metrics() (saved.Metrics, *Variable) { return m.metrics, m.metricState }
func (m innerFunction) SetMetrics(of saved.Metrics, state *Variable, owns bool) {
	m.metrics, m.metricState, m.ownsState = of, state, owns
}

func (m innerFunction) Check() error { return m.check() }

// Accumulator creates the variable in which a function accumulates n metrics. It has shape [n, 2]:
// a sum and a weight for each metric, separately on each replica. The zeros are copied to the
// devices before the first run, like the values of a store.
func (m innerStrategy) Accumulator(name string, n int) (*Variable, error) {
	s, store := m.TPUStrategy, model.NewStore()
	v := &Variable{strategy: s, path: name, dtype: dtypes.Float64, shape: []int{n, 2}, annotation: logical.Replicated(),
		synchronization: OnRead, aggregation: AggregateSum}
	if _, err := store.CreateVariable(name, tensors.FromShape(v.Shape())); err != nil {
		return nil, v.failed(err)
	}
	v.waiting.Store(&Variables{strategy: s, store: store, turn: semaphore.NewWeighted(1)})
	return v, s.ownVariables(v)
}

func (m innerContext) Meet(f func(op string, v *Variable) (path string, first *graph.Node, wrote func(x *graph.Node))) {
	m.meet = f
}

func (m innerContext) Held(v *Variable) region.StepVariable { return m.capture("Read", v) }

func (m innerContext) Rows() (mine, all *graph.Node)         { return m.rows() }
func (m innerContext) Weighted(mean *graph.Node) *graph.Node { return m.weighted(mean) }
func (m innerContext) Values() []Value                       { return m.values[:len(m.state.Arguments)] }
func (m innerContext) State() *stepstate.State               { return m.state }

func (m innerContext) Share(x *graph.Node) *graph.Node {
	if err := reducible(m.strategy, x.DType()); err != nil {
		panic(err)
	}
	return share(x, m.strategy.replicas)
}

func (m innerContext) Belonging(v *model.Variable) (over spmd.ReplicaShard, split logical.Annotation, state logical.StateSharding) {
	return m.variables().belonging(v)
}

func (m innerContext) Stored(v *model.Variable) spmd.ReplicaShard { return m.variables().overOf(v) }
func (m innerContext) variables() *Variables                      { return m.strategy.Variables(m.state.Scope.Store()) }

func (m innerContext) Slicing(v *model.Variable) (part *graph.Node, stacks []*graph.Node, layer func(slices []*graph.Node) *graph.Node) {
	return m.slicing(v)
}

func (m innerContext) Unwritten(v *model.Variable) *graph.Node { return unwritten(v, m.graph) }

func (m innerContext) PartOf(v *model.Variable, whole *graph.Node, over spmd.ReplicaShard) *graph.Node {
	return m.partOf(v, whole, over)
}

// KeepStates keeps the old per-replica states on replicas without rows.
func (m innerContext) KeepStates() {
	rows, _ := m.rows()
	for _, c := range m.captured {
		if rows != nil && c.changed && c.variable.perReplica() {
			c.now = ifRows(rows, c.now, m.graph.GetParameterByName(c.name))
		}
	}
}
