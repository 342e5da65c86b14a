package train_test

import (
	"bytes"
	"context"
	"math"
	"testing"

	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/core/tensors"
	"github.com/gomlx/gomlx/ml/layers"
	"github.com/gomlx/gomlx/ml/model"
	"github.com/gomlx/gomlx/ml/train/optimizer"
	"github.com/gomlx/gomlx/ml/train/optimizer/cosineschedule"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/internal/test/plugintest"
	"github.com/tpustrategy/tpustrategy/internal/test/strategytest"
	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/strategy/stepfile"
	"github.com/tpustrategy/tpustrategy/strategy/train"
	"github.com/tpustrategy/tpustrategy/tpu/simhost"
)

// sharded returns the options of a mesh whose replicas shard all possible state.
func sharded(r, p int, state logical.StateSharding) strategy.Options {
	return strategy.Options{Replicas: r, LogicalDevices: p, Variables: append(oddRules(p), strategytest.Share(state,
		1)...)}
}

// values returns the values of a store's variables.
func values(t *testing.T, s *strategy.TPUStrategy, store *model.Store) map[string]*tensors.Tensor {
	t.Helper()
	all := map[string]*tensors.Tensor{}
	for _, v := range s.Variables(store).All() {
		value, err := v.Value(t.Context())
		require.NoError(t, err)
		all[v.Path()] = value
	}
	return all
}

func requireAlike(t *testing.T, want, got map[string]*tensors.Tensor, delta float64) {
	t.Helper()
	require.Len(t, got, len(want))
	for path, value := range want {
		require.Contains(t, got, path)
		assert.True(t, value.InDelta(got[path], delta), "%s: %s, not %s", path, got[path], value)
	}
}

func TestEveryOptimizerUpdatesParts(t *testing.T) {
	sys := plugintest.System(t, 8)
	for name, c := range map[string]struct {
		params map[string]any
		opt    func(store *model.Store) optimizer.Interface
		state  logical.StateSharding
	}{
		"adamax": {nil,
			func(*model.Store) optimizer.Interface { return optimizer.Adam().Adamax().LearningRate(0.01).Done() },
			logical.ShardGradients},
		"rmsprop": {nil, func(*model.Store) optimizer.Interface { return optimizer.RMSProp().LearningRate(0.01).Done() },
			logical.ShardParameters},
		"adamw, steps held back": {nil, func(*model.Store) optimizer.Interface {
			return optimizer.Adam().WeightDecay(0.1).WithBackoffSteps(2).LearningRate(0.01).Done()
		}, logical.ShardParameters},
		"sgd with its decay": {nil,
			func(*model.Store) optimizer.Interface { return optimizer.StochasticGradientDescent().Done() },
			logical.ShardGradients},
		"clipped, all from parameters": {map[string]any{optimizer.ParamOptimizer: "adamw", optimizer.ParamLearningRate: 0.02,
			optimizer.ParamClipStepByValue: 0.005, optimizer.ParamClipNaN: true},
			func(store *model.Store) optimizer.Interface { return optimizer.FromStore(store) }, logical.ShardOptimizer},
		"a schedule": {map[string]any{optimizer.ParamLearningRate: 0.1},
			func(store *model.Store) optimizer.Interface { return optimizer.FromStore(store) }, logical.ShardGradients},
	} {
		t.Run(name, func(t *testing.T) {
			run := func(opts strategy.Options) ([]float64, map[string]*tensors.Tensor) {
				s := strategytest.On(t, sys, opts)
				store := strategytest.SeededStore()
				store.SetParams(c.params)
				loss := odd(s.NumLogicalDevices())
				step := strategytest.OK(train.New(s, store, c.opt(store), func(rc *strategy.ReplicaContext,
					in []*graph.Node) *graph.Node {
					if name == "a schedule" {
						cosineschedule.New(rc.Scope(), rc.Graph(), in[0].DType()).PeriodInSteps(4).WarmUpSteps(2).Done()
					}
					return loss(rc, in)
				}, train.Options{}))
				return strategytest.Losses(t, step, 0, 4), values(t, s, store)
			}
			wantLosses, want := run(strategy.Options{Replicas: 1, LogicalDevices: 1})
			losses, got := run(sharded(4, 2, c.state))
			assert.InDeltaSlice(t, wantLosses, losses, 1e-5)
			requireAlike(t, want, got, 1e-4)
		})
	}
}

// One element of a gradient is not finite. An optimizer that ignores such gradients ignores the
// whole gradient, including the shards of other replicas.
func TestAGradientThatIsNotFiniteIsDroppedWhole(t *testing.T) {
	sys := plugintest.System(t, 4)
	run := func(opts strategy.Options) []float32 {
		s := strategytest.On(t, sys, opts)
		store := model.NewStore()
		store.SetParams(map[string]any{optimizer.ParamClipNaN: true})
		step := strategytest.OK(train.New(s, store, optimizer.Adam().LearningRate(0.1).Done(),
			func(rc *strategy.ReplicaContext, in []*graph.Node) *graph.Node {
				w := rc.Scope().VariableWithValue("w", []float32{1, 1, 1, 1}).NodeValue(rc.Graph())
				return graph.ReduceAllMean(graph.Mul(in[0], graph.InsertAxes(w, 0)))
			}, train.Options{}))
		for _, third := range []float32{3, float32(math.Inf(1)), 5} {
			x := make([][]float32, 4)
			for i := range x {
				x[i] = []float32{1, -2, third, 4}
			}
			_, err := step.Run(t.Context(), x)
			require.NoError(t, err)
		}
		v, _ := s.Variables(store).Lookup("/w")
		return strategytest.Flat(t, v)
	}
	want := run(strategy.Options{Replicas: 1, LogicalDevices: 1})
	for _, state := range stages[1:] {
		assert.InDeltaSlice(t, want, run(strategy.Options{Variables: strategytest.Share(state, 1)}), 1e-6, state.String())
	}
}

func TestStepsOfAllKindsUpdateParts(t *testing.T) {
	sys := plugintest.System(t, 4)
	// Epsilon keeps gradients close to 0 from becoming large updates because of rounding.
	adam := func() optimizer.Interface { return optimizer.Adam().LearningRate(0.02).Epsilon(1e-4).Done() }
	one := strategytest.On(t, sys, strategy.Options{Replicas: 1, LogicalDevices: 1})
	for name, take := range map[string]func(t *testing.T, step *train.Step){
		"a loop on the devices": func(t *testing.T, step *train.Step) {
			_, err := step.RunSteps(t.Context(), strategytest.Batches(0, 3)...)
			require.NoError(t, err)
		},
		"a bound step": func(t *testing.T, step *train.Step) {
			x, y := strategytest.Batch(1)
			b, err := step.Bind(t.Context(), x, y)
			require.NoError(t, err)
			for range 3 {
				require.NoError(t, b.Launch(t.Context()))
			}
		},
		"uneven batches": func(t *testing.T, step *train.Step) {
			for _, rows := range []int{5, 3} {
				x, y := strategytest.Sums(rows, 8)
				_, err := step.Run(t.Context(), x, y)
				require.NoError(t, err)
			}
		},
		"steps that are skipped": func(t *testing.T, step *train.Step) {
			for i := range 3 {
				x, y := strategytest.Batch(i)
				if i == 1 {
					x.MustMutableFlatData(func(flat any) { flat.([]float32)[7] = float32(math.NaN()) })
				}
				_, err := step.Run(t.Context(), x, y)
				require.NoError(t, err)
			}
			n, err := step.NonFinite(t.Context())
			require.NoError(t, err)
			assert.Equal(t, train.NonFiniteSteps{Steps: 3, Skipped: 1, Last: 2, What: "the loss"}, n)
		},
	} {
		t.Run(name, func(t *testing.T) {
			opts := train.Options{}
			if name == "steps that are skipped" {
				opts.NonFinite = train.Skip
			}
			run := func(s *strategy.TPUStrategy) map[string]*tensors.Tensor {
				store := strategytest.SeededStore()
				take(t, strategytest.OK(train.New(s, store, adam(), odd(s.NumLogicalDevices()), opts)))
				return values(t, s, store)
			}
			want := run(one)
			for _, c := range []strategy.Options{sharded(4, 1, logical.ShardGradients), sharded(2, 2, logical.ShardParameters)} {
				requireAlike(t, want, run(strategytest.On(t, sys, c)), 1e-4)
			}
		})
	}
}

func TestVariablesOfTheScopeHaveStateInParts(t *testing.T) {
	sys := plugintest.System(t, 4)
	run := func(opts strategy.Options) ([]float32, *strategy.Variable) {
		s := strategytest.On(t, sys, opts)
		w, err := s.NewVariable(t.Context(), [][]float32{{1, 2, 3, 4, 5, 6, 7, 8}, {1, 0, 1, 0, 1, 0, 1, 0}},
			strategy.VariableOptions{Name: "w"})
		require.NoError(t, err)
		store := strategytest.SeededStore()
		step := strategytest.OK(train.New(s, store, optimizer.Adam().LearningRate(0.1).Done(),
			func(rc *strategy.ReplicaContext, in []*graph.Node) *graph.Node {
				y := graph.MatMul(graph.Tanh(layers.Dense(rc.Scope("d"), in[0], true, 2)), rc.Read(w))
				return graph.ReduceAllMean(graph.Square(graph.Sub(y, in[1])))
			}, train.Options{}))
		strategytest.Losses(t, step, 0, 3)
		moment, ok := s.Variables(store).Lookup("/AdamOptimizer/distributed/w_1st_moment")
		require.True(t, ok)
		return append(strategytest.Flat(t, w), strategytest.Flat(t, moment)...), moment
	}
	want, whole := run(strategy.Options{Replicas: 1, LogicalDevices: 1})
	assert.Equal(t, 64, whole.BytesPerDevice())
	for _, state := range stages[1:] {
		got, moment := run(strategy.Options{Replicas: 4, LogicalDevices: 1, Variables: strategytest.Share(state, 1)})
		assert.InDeltaSlice(t, want, got, 1e-4, state.String())
		assert.Equal(t, 16, moment.BytesPerDevice())
	}
}

// No process has all shards of a variable.
func TestProcessesHavePartsOfTheState(t *testing.T) {
	sys := plugintest.System(t, 4)
	losses, want := trainOdd(t, strategytest.On(t, sys, strategy.Options{Replicas: 1, LogicalDevices: 1}),
		optimizer.Adam().LearningRate(0.02).Done(), 3)
	for _, mesh := range [][2]int{{4, 1}, {2, 2}} {
		strategytest.NoErrors(t, strategytest.OnProcesses(t, sys, simhost.Options{Processes: 2}, sharded(mesh[0], mesh[1],
			logical.ShardParameters), func(ctx context.Context, s *strategy.TPUStrategy) error {
			store := strategytest.SeededStore()
			step := strategytest.OK(train.New(s, store, optimizer.Adam().LearningRate(0.02).Done(), odd(s.NumLogicalDevices()),
				train.Options{}))
			for i := range losses {
				x, y := strategytest.Batch(i)
				loss, err := step.Run(ctx, x, y)
				if err != nil {
					return err
				}
				value, err := loss.Float64(ctx)
				if err != nil {
					return err
				}
				assert.InDelta(t, losses[i], value, 1e-5)
			}
			if err := s.Variables(store).Pull(ctx); err != nil {
				return err
			}
			for path, value := range want {
				got, err := store.GetVariable(path).Value()
				if err != nil {
					return err
				}
				assert.True(t, value.InDelta(got, 1e-4), path)
			}
			return s.Variables(store).Push(ctx)
		}))
	}
}

func TestASavedStepHasItsParts(t *testing.T) {
	sys := plugintest.System(t, 4)
	opts := sharded(2, 2, logical.ShardParameters)
	s := strategytest.On(t, sys, opts)
	store := strategytest.SeededStore()
	step := strategytest.OK(train.New(s, store, optimizer.Adam().LearningRate(0.02).Done(), odd(2), train.Options{}))
	strategytest.Losses(t, step, 0, 2)
	require.NoError(t, s.Variables(store).Pull(t.Context()))
	x, y := strategytest.Batch(0)
	compiled, err := step.Compiled(t.Context(), x, y)
	require.NoError(t, err)
	var file bytes.Buffer
	require.NoError(t, stepfile.Save(t.Context(), &file, compiled))
	want := strategytest.Losses(t, step, 2, 4)

	kept, err := store.Clone()
	require.NoError(t, err)
	loaded, err := stepfile.LoadTrain(t.Context(), strategytest.On(t, sys, opts), bytes.NewReader(file.Bytes()), kept)
	require.NoError(t, err)
	assert.Equal(t, want, strategytest.Losses(t, loaded, 2, 4))

	other := opts
	other.Variables = oddRules(2)
	_, err = stepfile.LoadTrain(t.Context(), strategytest.On(t, sys, other), bytes.NewReader(file.Bytes()), kept)
	assert.ErrorContains(t, err, "give the rules that the step was compiled with")
}

// Sharded variables are read and written in every way.
func TestPartsAreReadAndWrittenAsOneVariable(t *testing.T) {
	ctx := t.Context()
	sys := plugintest.System(t, 4)
	for _, mesh := range [][2]int{{4, 1}, {2, 2}} {
		s := strategytest.On(t, sys, strategy.Options{Replicas: mesh[0], LogicalDevices: mesh[1],
			Variables: strategytest.Share(logical.ShardParameters, 1)})
		store := model.NewStore()
		first := [][]float32{{1, 2, 3}, {4, 5, 6}, {7, 8, 9}}
		f := s.Function(func(rc *strategy.ReplicaContext, in []*graph.Node) []*graph.Node {
			w := rc.Scope().VariableWithValue("w", first).NodeValue(rc.Graph())
			return []*graph.Node{graph.MatMul(in[0], w)}
		}, strategy.FunctionOptions{Store: store})
		results, err := f.Run(ctx, strategytest.OK(s.Mirror(ctx, [][]float32{{1, 0, 0}, {0, 1, 1}}, logical.Annotation{})))
		require.NoError(t, err)
		assert.Equal(t, [][]float32{{1, 2, 3}, {11, 13, 15}}, strategytest.OK(results[0].Local(ctx, 1)).Value())
		v, ok := s.Variables(store).Lookup("/w")
		require.True(t, ok)
		part := []int{1, 2}[mesh[0]%4/2]
		assert.Equal(t, 4*3*part, v.BytesPerDevice())
		assert.Equal(t, []float32{1, 2, 3, 4, 5, 6, 7, 8, 9}, strategytest.Flat(t, v))
		last, err := v.LocalShard(ctx, mesh[0]-1, 0)
		require.NoError(t, err)
		assert.Equal(t, []int{max(3-part*(mesh[0]-1), 0), 3}, last.Shape().Dimensions)
		local, err := v.Local(ctx, 1)
		require.NoError(t, err)
		assert.Equal(t, first, local.Value())
		for _, shard := range v.Shards() {
			assert.Equal(t, min(part, max(3-part*shard.Replica, 0)), shard.Size[0])
		}
		require.NoError(t, v.Assign(ctx, [][]float32{{9, 8, 7}, {6, 5, 4}, {3, 2, 1}}))
		require.NoError(t, v.AssignAdd(ctx, [][]float32{{1, 1, 1}, {1, 1, 1}, {1, 1, 1}}))
		assert.Equal(t, []float32{10, 9, 8, 7, 6, 5, 4, 3, 2}, strategytest.Flat(t, v))
		m, err := v.Read(ctx)
		require.NoError(t, err)
		assert.Equal(t, [][]float32{{10, 9, 8}, {7, 6, 5}, {4, 3, 2}}, strategytest.OK(m.Value(ctx)).Value())
		require.NoError(t, v.Scatter(ctx, strategy.ScatterUpdate, []int32{2}, [][]float32{{0, 0, 1}}))
		assert.Equal(t, []float32{10, 9, 8, 7, 6, 5, 0, 0, 1}, strategytest.Flat(t, v))
		require.NoError(t, s.Variables(store).Pull(ctx))
		require.NoError(t, store.GetVariable("/w").SetValue(tensors.FromValue(first)))
		require.NoError(t, s.Variables(store).Push(ctx))
		assert.Equal(t, []float32{1, 2, 3, 4, 5, 6, 7, 8, 9}, strategytest.Flat(t, v))
		require.NoError(t, v.RestoreValue(ctx, tensors.FromShape(v.Shape())))
		assert.Equal(t, make([]float32, 9), strategytest.Flat(t, v))
	}
}

// The variables are large enough to be initialized on the devices.
func TestFirstValuesOfPartsAreThoseOfTheWhole(t *testing.T) {
	sys := plugintest.System(t, 8)
	run := func(opts strategy.Options) map[string]*tensors.Tensor {
		s := strategytest.On(t, sys, opts)
		store := strategytest.SeededStore()
		step := strategytest.OK(train.New(s, store, optimizer.Adam().Done(), func(rc *strategy.ReplicaContext,
			in []*graph.Node) *graph.Node {
			h := layers.Dense(rc.Scope("a"), in[0], false, 2051)
			return graph.ReduceAllMean(graph.Square(layers.Dense(rc.Scope("b"), h, false, 9)))
		}, train.Options{}))
		strategytest.Losses(t, step, 0, 1)
		return values(t, s, store)
	}
	want := run(strategy.Options{Replicas: 1, LogicalDevices: 1})
	for _, mesh := range [][2]int{{8, 1}, {4, 2}} {
		opts := strategy.Options{Replicas: mesh[0], LogicalDevices: mesh[1],
			Variables: strategytest.Share(logical.ShardParameters, 1)}
		requireAlike(t, want, run(opts), 1e-5)
	}
}

func TestOptionsOfStateThatSayNothingAreRefused(t *testing.T) {
	sys := plugintest.System(t, 2)
	for _, c := range []struct {
		opts strategy.Options
		want string
	}{
		{strategy.Options{Variables: strategytest.Share(-1, 0)}, "StateSharding(-1) is undefined"},
		{strategy.Options{Variables: strategytest.Share(5, 0)}, "StateSharding(5) is undefined"},
		{strategy.Options{Variables: strategytest.Share(logical.ShardOptimizer, -2)}, "MinElements is -2"},
	} {
		_, err := strategy.New(sys, c.opts)
		var option *strategy.OptionError
		require.ErrorAs(t, err, &option)
		assert.ErrorContains(t, err, c.want)
	}
}
