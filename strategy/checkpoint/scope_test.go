package checkpoint_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/core/tensors"
	"github.com/gomlx/gomlx/ml/model"
	"github.com/gomlx/gomlx/ml/train/optimizer"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/internal/test/plugintest"
	"github.com/tpustrategy/tpustrategy/internal/test/strategytest"
	"github.com/tpustrategy/tpustrategy/pjrt/cache"
	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/strategy/checkpoint"
	"github.com/tpustrategy/tpustrategy/strategy/train"
)

// scope is a training program whose steps also write variables of each kind that no optimizer
// trains.
type scope struct {
	strat *strategy.TPUStrategy
	store *model.Store
	step  *train.Step
	vars  []*strategy.Variable
}

func newScope(t *testing.T, programs *cache.Cache, r, p int) *scope {
	s := strategytest.On(t, plugintest.System(t, 8), strategy.Options{Replicas: r, LogicalDevices: p,
		Variables: strategytest.AnnotatedRules(p), Compiler: programs})
	w := &scope{strat: s, store: strategytest.SeededStore()}
	for _, opts := range []strategy.VariableOptions{
		{Name: "global_step", Aggregation: strategy.AggregateFirst},
		{Name: "seen", Synchronization: strategy.OnRead, Aggregation: strategy.AggregateSum},
		{Name: "rate", Synchronization: strategy.OnRead, Aggregation: strategy.AggregateMean},
		{Name: "first", Synchronization: strategy.OnRead, Aggregation: strategy.AggregateFirst},
		{Name: "local", LocalWrites: true},
		{Name: "frozen", Aggregation: strategy.AggregateMean, Trainable: new(bool)},
		{Name: "never written", Trainable: new(bool)},
	} {
		initial := any(float32(0))
		if opts.Name == "global_step" {
			initial = int64(0)
		}
		v, err := s.NewVariable(t.Context(), initial, opts)
		require.NoError(t, err)
		w.vars = append(w.vars, v)
	}
	model := strategytest.Annotated(p)
	w.step = strategytest.OK(train.New(s, w.store, optimizer.Adam().LearningRate(0.01).Done(),
		func(rc *strategy.ReplicaContext, in []*graph.Node) *graph.Node {
			id := graph.AddScalar(graph.ConvertDType(rc.ReplicaIDInSyncGroup(), dtypes.Float32), 1)
			rc.AssignAdd(w.vars[0], int64(1))
			rc.AssignAdd(w.vars[1], graph.Scalar(in[0].Graph(), dtypes.Float32, in[0].Shape().Dimensions[0]))
			for _, v := range w.vars[2:6] {
				rc.AssignAdd(v, id)
			}
			return model(rc, in)
		}, train.Options{Metrics: []train.Metric{train.MeanLoss()}, Average: 0.5}))
	return w
}

// values returns the variables' values as a checkpoint has them.
func (w *scope) values(t *testing.T) map[string]float64 {
	all := map[string]float64{}
	for _, v := range append(w.vars, w.step.MetricState()) {
		value, err := v.SaveValue(t.Context())
		require.NoError(t, err)
		all[v.Path()] = strategytest.Numbers(t, value)[0]
	}
	return all
}

// A training program is saved after three steps on each mesh, restored on every other one, and
// takes the same next steps.
func TestAllVariablesOfAStrategyAreSaved(t *testing.T) {
	ctx := context.Background()
	programs, err := cache.Open(t.TempDir(), cache.Options{})
	require.NoError(t, err)
	meshes := [][2]int{{1, 1}, {8, 1}, {4, 2}, {2, 4}}
	for i, mesh := range meshes {
		w := newScope(t, programs, mesh[0], mesh[1])
		strategytest.Losses(t, w.step, 0, 3)
		want := w.values(t)
		require.Equal(t, 3., want["global_step"])
		require.InDelta(t, 3*32, want["seen"], 1e-4)
		require.Equal(t, 3., want["first"])
		d := openRun(t, checkpoint.ManagerOptions{Strategy: w.strat})
		require.NoError(t, d.Save(ctx, 3, checkpoint.StrategyGroup(w.strat, w.store), checkpoint.SaveOptions{}))
		then := strategytest.Losses(t, w.step, 3, 5)
		for _, into := range [][2]int{mesh, meshes[(i+1)%len(meshes)]} {
			said := fmt.Sprintf("%v on %v", mesh, into)
			other := newScope(t, programs, into[0], into[1])
			restoration(t, d, checkpoint.StrategyGroup(other.strat, other.store), checkpoint.RestoreOptions{})
			assert.InDeltaMapValues(t, want, other.values(t), 1e-4, said)
			assert.InDeltaSlice(t, then, strategytest.Losses(t, other.step, 3, 5), 1e-4, said)
			assert.Equal(t, 5., other.values(t)["global_step"], said)
		}
	}
}

// A variable of the scope has no combined value.
func TestWhatCannotBeSavedIsNamed(t *testing.T) {
	ctx := context.Background()
	s := strategytest.On(t, plugintest.System(t, 2), strategy.Options{Replicas: 2})
	none, err := s.NewVariable(ctx, float32(1), strategy.VariableOptions{Name: "apart", Synchronization: strategy.OnRead})
	require.NoError(t, err)
	store := model.NewStore()
	_, err = store.CreateVariable("/x", tensors.FromScalar(float32(1)))
	require.NoError(t, err)
	all := checkpoint.StrategyGroup(s, store)
	d := openRun(t, checkpoint.ManagerOptions{Strategy: s})
	err = d.Save(ctx, 1, all, checkpoint.SaveOptions{})
	require.ErrorIs(t, err, checkpoint.ErrVariable)
	require.ErrorContains(t, err, `variable "apart": `)
	require.ErrorContains(t, err, "Group.Without")
	require.NoError(t, d.Save(ctx, 1, all.Without(none), checkpoint.SaveOptions{}))
	c, err := d.Latest(ctx)
	require.NoError(t, err)
	defer c.Close()
	require.Len(t, c.Variables(), 1)
}

// The sums of a step's and an evaluation's metrics are saved. They are restored to the same step
// and evaluation, to ones with other metrics, to none, to more, and before they exist. In each case
// the error names a missing counter.
func TestSumsOfMetricsAreOfTheSameMetrics(t *testing.T) {
	ctx := context.Background()
	loss := func(rc *strategy.ReplicaContext, in []*graph.Node) *graph.Node {
		return graph.Mul(rc.Scope().VariableWithValue("w", float32(2)).NodeValue(rc.Graph()), graph.ReduceAllMean(in[0]))
	}
	x := tensors.FromValue([]float32{1, 2, 3, 4})
	renamed := train.MeanLoss()
	renamed.Name = "mine" // of the same shape
	type life struct {
		group checkpoint.Group
		step  *train.Step
		held  *train.Evaluation
	}
	begin := func(replicas int, metrics, of []train.Metric, counter string) life {
		s := strategytest.On(t, plugintest.System(t, 4), strategy.Options{Replicas: replicas})
		l, store := life{}, model.NewStore()
		if counter != "" {
			strategytest.OK(s.NewVariable(ctx, float32(0), strategy.VariableOptions{Name: counter,
				Synchronization: strategy.OnRead, Aggregation: strategy.AggregateSum}))
		}
		if metrics != nil {
			l.step = strategytest.OK(train.New(s, store, optimizer.StochasticGradientDescent().Done(), loss,
				train.Options{Metrics: metrics}))
		}
		if of != nil {
			l.held = strategytest.OK(train.NewEvaluation(s, store, loss, train.Options{Metrics: of}))
		}
		l.group = checkpoint.StrategyGroup(s, store)
		return l
	}
	one, other, more := []train.Metric{train.MeanLoss()}, []train.Metric{renamed}, []train.Metric{train.MeanLoss(),
		renamed}
	first := begin(4, one, one, "seen")
	_, err := first.step.Run(ctx, x)
	require.NoError(t, err)
	require.NoError(t, first.held.Run(ctx, x))
	trained := strategytest.OK(first.step.Metrics(ctx))
	held := strategytest.OK(first.held.Results(ctx))
	require.Equal(t, 4., trained[0].Weight)

	folder := openRun(t)
	require.NoError(t, folder.Save(ctx, 1, first.group, checkpoint.SaveOptions{}))
	func() {
		c := strategytest.OK(folder.Open(ctx, 1))
		defer c.Close()
		for _, to := range []struct{ metrics, of []train.Metric }{{one, one}, {one, nil}, {nil, one}, {nil, nil},
			{other, other}, {more, one}} {
			l := begin(2, to.metrics, to.of, "seen")
			require.NoError(t, c.Restore(ctx, l.group, checkpoint.RestoreOptions{}))
			if l.step != nil {
				got := strategytest.OK(l.step.Metrics(ctx))
				if &to.metrics[0] == &one[0] {
					assert.Equal(t, trained, got)
				} else {
					assert.Zero(t, got[0].Weight, "the sums of other metrics")
				}
			}
			if l.held != nil && &to.of[0] == &one[0] {
				assert.Equal(t, held, strategytest.OK(l.held.Results(ctx)))
			}
			var mismatch *checkpoint.MismatchError
			require.ErrorAs(t, c.Restore(ctx, begin(2, to.metrics, to.of, "").group, checkpoint.RestoreOptions{}), &mismatch)
			assert.Equal(t, &checkpoint.MismatchError{Unexpected: []string{"seen"}}, mismatch)
			require.ErrorAs(t, c.Restore(ctx, begin(2, to.metrics, to.of, "rows").group, checkpoint.RestoreOptions{}), &mismatch)
			assert.Equal(t, &checkpoint.MismatchError{Missing: []string{"rows"}, Unexpected: []string{"seen"}}, mismatch)
		}
		store := model.NewStore()
		require.NoError(t, c.Restore(ctx, checkpoint.StoreGroup(store), checkpoint.RestoreOptions{}))
		for v := range store.IterVariables() {
			assert.NotContains(t, v.Path(), "metrics")
		}
	}()
	bare := begin(1, nil, nil, "seen")
	require.NoError(t, folder.Save(ctx, 2, bare.group, checkpoint.SaveOptions{}))
	c := strategytest.OK(folder.Open(ctx, 2))
	defer c.Close()
	require.NoError(t, c.Restore(ctx, begin(2, one, one, "seen").group, checkpoint.RestoreOptions{}),
		"of a program without metrics")
}
