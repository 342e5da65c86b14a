package train_test

import (
	"errors"
	"fmt"
	"math"
	"testing"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/core/tensors"
	"github.com/gomlx/gomlx/ml/layers"
	"github.com/gomlx/gomlx/ml/model"
	"github.com/gomlx/gomlx/ml/train/optimizer"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/internal/test/plugintest"
	"github.com/tpustrategy/tpustrategy/internal/test/strategytest"
	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/lowering/precision"
	"github.com/tpustrategy/tpustrategy/lowering/remat"
	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/strategy/train"
)

// averageOf computes, on the host, the moving average of a variable's values after each step.
func averageOf(values []*tensors.Tensor, decay float64, warm bool, t *testing.T) (average []float64) {
	for u, value := range values {
		d := decay
		if warm {
			d = min(d, float64(1+u)/float64(10+u))
		}
		for i, x := range strategytest.Numbers(t, value) {
			if u == 0 {
				average = append(average, x)
			} else {
				average[i] = d*average[i] + (1-d)*x
			}
		}
	}
	return average
}

func TestAveragesFollowTheVariables(t *testing.T) {
	sys := plugintest.System(t, 8)
	for _, c := range []struct {
		r, p  int
		state logical.StateSharding
		warm  bool
		deep  bool
	}{
		{1, 1, logical.ShardNothing, false, false},
		{8, 1, logical.ShardParameters, true, false},
		{4, 2, logical.ShardOptimizer, false, false},
		{2, 2, logical.ShardParameters, false, true},
		{2, 4, logical.ShardGradients, true, false},
	} {
		t.Run(fmt.Sprintf("%dx%d %s", c.r, c.p, c.state), func(t *testing.T) {
			o, loss := sharded(c.r, c.p, c.state), odd(c.p)
			if c.deep {
				o, loss = deepOptions(c.r, c.p, c.state), deep(remat.Nothing())
			}
			s, store := strategytest.On(t, sys, o), strategytest.SeededStore()
			step := strategytest.OK(train.New(s, store, optimizer.Adam().LearningRate(0.05).Done(), loss,
				train.Options{Average: 0.7, AverageWarmUp: c.warm, Accumulate: 2}))
			evaluate := s.Function(func(rc *strategy.ReplicaContext, in []*graph.Node) []*graph.Node {
				plain := rc.AllReduce(strategy.Mean, loss(rc, in))
				var average *graph.Node
				train.Averaged(rc, "train_step", func() { average = rc.AllReduce(strategy.Mean, loss(rc, in)) })
				return []*graph.Node{plain, average}
			}, strategy.FunctionOptions{Store: store, SplitBatch: true})
			both := func(batch []any) (all []float64) {
				results, err := evaluate.Run(t.Context(), batch...)
				require.NoError(t, err)
				for _, r := range results {
					value, err := r.Local(t.Context(), 0)
					require.NoError(t, err)
					all = append(all, strategytest.Numbers(t, value)...)
				}
				return all
			}
			history := map[string][]*tensors.Tensor{}
			batch := sums(16)[0]
			for range 3 {
				_, err := step.Run(t.Context(), batch...)
				require.NoError(t, err)
				for path, value := range values(t, s, store) {
					history[path] = append(history[path], value)
				}
			}
			n := 0
			for path := range history {
				if all := history["/averages/train_step"+path]; all != nil {
					n++
					assert.InDeltaSlice(t, averageOf(history[path], 0.7, c.warm, t), strategytest.Numbers(t, all[2]), 1e-6, path)
					v, _ := s.Variables(store).Lookup("/averages/train_step" + path)
					moment, ok := s.Variables(store).Lookup("/optimizers/AdamOptimizer" + path + "_1st_moment")
					if ok {
						assert.Equal(t, moment.BytesPerDevice(), v.BytesPerDevice(), path)
					}
				}
			}
			assert.GreaterOrEqual(t, n, 8)
			if c.r > 2 {
				return // the rest is the same for all
			}
			before := both(batch)
			assert.NotEqual(t, before[0], before[1])
			require.NoError(t, step.SwapAverages(t.Context()))
			swapped := both(batch)
			assert.InDeltaSlice(t, []float64{before[1], before[0]}, swapped, 1e-6)
			require.NoError(t, step.SwapAverages(t.Context()))
			assert.Equal(t, before, both(batch))
		})
	}
}

// Moving averages, and the results of Averaged and SwapAverages, are equal on many devices and on
// one.
func TestAveragesAreThoseOfOneDevice(t *testing.T) {
	sys := plugintest.System(t, 8)
	batches := sums(16, 16, 16)
	for _, o := range []train.Options{{Average: 0.6}, {Average: 0.9, AverageWarmUp: true, Accumulate: 2}} {
		averages := func(r, p int, state logical.StateSharding) (means []float64, all, swapped map[string]*tensors.Tensor) {
			s, store := strategytest.On(t, sys, sharded(r, p, state)), strategytest.SeededStore()
			step := strategytest.OK(train.New(s, store, optimizer.Adam().LearningRate(0.05).Done(), odd(p), o))
			for _, batch := range batches {
				_, err := step.Run(t.Context(), batch...)
				require.NoError(t, err)
			}
			mean := s.Function(func(rc *strategy.ReplicaContext, in []*graph.Node) (out []*graph.Node) {
				train.Averaged(rc, "train_step", func() { out = append(out, rc.AllReduce(strategy.Mean, odd(p)(rc, in))) })
				return append(out, rc.AllReduce(strategy.Mean, odd(p)(rc, in)))
			}, strategy.FunctionOptions{Store: store, SplitBatch: true})
			results, err := mean.Run(t.Context(), batches[0]...)
			require.NoError(t, err)
			for _, r := range results {
				value, err := r.Local(t.Context(), 0)
				require.NoError(t, err)
				means = append(means, strategytest.Numbers(t, value)...)
			}
			all = values(t, s, store)
			require.NoError(t, step.SwapAverages(t.Context()))
			return means, all, values(t, s, store)
		}
		wantMeans, want, wantSwapped := averages(1, 1, logical.ShardNothing)
		assert.NotEqual(t, wantMeans[0], wantMeans[1])
		require.True(t, want["/averages/train_step/odd/dense/weights"].Equal(wantSwapped["/odd/dense/weights"]))
		for _, mesh := range [][2]int{{8, 1}, {4, 2}, {2, 4}} {
			state := logical.ShardNothing
			if o.AverageWarmUp {
				state = logical.ShardParameters
			}
			if o.AverageWarmUp != (mesh[0] == 4) && mesh[0] != 2 {
				continue
			}
			t.Run(fmt.Sprintf("%v of %d by %d, %s", o.Average, mesh[0], mesh[1], state), func(t *testing.T) {
				means, got, swapped := averages(mesh[0], mesh[1], state)
				assert.InDeltaSlice(t, wantMeans, means, 1e-4)
				requireAlike(t, want, got, 1e-4)
				requireAlike(t, wantSwapped, swapped, 1e-4)
			})
		}
	}
}

// A step whose update is not applied does not change averages. Frozen variables have no averages;
// trained variables of the strategy have.
func TestAveragesOfStepsThatAreNotTaken(t *testing.T) {
	s, store := strategytest.New(t, 2, 1), strategytest.SeededStore()
	w, err := s.NewVariable(t.Context(), []float32{2}, strategy.VariableOptions{Name: "w",
		Aggregation: strategy.AggregateMean})
	require.NoError(t, err)
	loss := func(rc *strategy.ReplicaContext, in []*graph.Node) *graph.Node {
		scale := precision.Compute(graph.Reshape(rc.Read(w)))
		return graph.Mul(scale, odd(1)(rc, in))
	}
	step := strategytest.OK(train.New(s, store, optimizer.Adam().LearningRate(0.05).Done(), loss,
		train.Options{Average: 0.9, NonFinite: train.Skip, Freeze: []string{`^/wide/`}, Precision: precision.MixedBFloat16}))
	read := s.Function(func(rc *strategy.ReplicaContext, in []*graph.Node) (out []*graph.Node) {
		train.Averaged(rc, "train_step", func() { out = append(out, rc.Read(w)) })
		return append(out, rc.Read(w))
	}, strategy.FunctionOptions{Store: store})
	batch := sums(8)[0]
	infinite := tensors.FromFlatDataAndDimensions(append(make([]float32, 7), float32(math.Inf(1))), 8, 1)
	_, err = step.Run(t.Context(), batch[0], infinite)
	require.NoError(t, err)
	_, err = step.Run(t.Context(), batch...)
	require.NoError(t, err)
	got := values(t, s, store)
	assert.Nil(t, got["/averages/train_step/wide/dense/weights"])
	assert.Equal(t, dtypes.Float32, got["/averages/train_step/odd/dense/weights"].DType())
	assert.Equal(t, []float64{1}, strategytest.Numbers(t, got["/averages/train_step/updates"]))
	assert.True(t, got["/odd/dense/weights"].Equal(got["/averages/train_step/odd/dense/weights"]),
		"the first step that is taken")
	_, err = step.Run(t.Context(), batch...)
	require.NoError(t, err)
	results, err := read.Run(t.Context())
	require.NoError(t, err)
	average, err := results[0].Local(t.Context(), 0)
	require.NoError(t, err)
	now, err := results[1].Local(t.Context(), 0)
	require.NoError(t, err)
	assert.NotEqual(t, strategytest.Numbers(t, now), strategytest.Numbers(t, average))
	require.NoError(t, step.SwapAverages(t.Context()))
	value, err := w.Value(t.Context())
	require.NoError(t, err)
	assert.Equal(t, strategytest.Numbers(t, average), strategytest.Numbers(t, value))
}

// An evaluation reads averages in loops, in blocks and under a policy.
func TestAnEvaluationOfAverages(t *testing.T) {
	policy := precision.MixedBFloat16
	s, store := strategytest.On(t, plugintest.System(t, 2), deepOptions(2, 1, logical.ShardParameters)),
		strategytest.SeededStore()
	loss := func(rc *strategy.ReplicaContext, in []*graph.Node) *graph.Node {
		x := remat.Block(remat.Nothing(), in[0], func(x *graph.Node) *graph.Node {
			return layers.Dense(rc.Scope("block"), x,
				true, 8)
		})
		return deep(remat.Nothing())(rc, []*graph.Node{x, in[1]})
	}
	step := strategytest.OK(train.New(s, store, optimizer.Adam().LearningRate(0.05).Done(), loss,
		train.Options{Average: 0.5, Precision: policy}))
	for range 3 {
		_, err := step.Run(t.Context(), sums(16)[0]...)
		require.NoError(t, err)
	}
	evaluated := func(loss train.Loss) float64 {
		e := strategytest.OK(train.NewEvaluation(s, store, loss, train.Options{Precision: policy}))
		require.NoError(t, e.Run(t.Context(), sums(7)[0]...))
		all, err := e.Results(t.Context())
		require.NoError(t, err)
		return all[0].Value
	}
	averaged := func(rc *strategy.ReplicaContext, in []*graph.Node) (l *graph.Node) {
		train.Averaged(rc, "train_step", func() { l = loss(rc, in) })
		return l
	}
	plain, average := evaluated(loss), evaluated(averaged)
	assert.NotEqual(t, plain, average)
	require.NoError(t, step.SwapAverages(t.Context()))
	assert.InDelta(t, average, evaluated(loss), 1e-6)
}

func TestAveragesThatCannotBe(t *testing.T) {
	s := strategytest.New(t, 2, 1)
	for want, o := range map[string]train.Options{
		"Options.Average is 1; give a decay between 0 and 1": {Average: 1},
		"Options.Average is -0.5":                            {Average: -0.5},
		"Options.AverageWarmUp is set without a decay":       {AverageWarmUp: true},
	} {
		_, err := train.New(s, model.NewStore(), optimizer.Adam().Done(), odd(1), o)
		assert.ErrorContains(t, err, want)
		assert.Equal(t, errkind.ValueError, errkind.KindOf(err))
	}
	store := model.NewStore()
	plain := strategytest.OK(train.New(s, store, optimizer.Adam().Done(), odd(1), train.Options{}))
	assert.ErrorIs(t, plain.SwapAverages(t.Context()), errors.ErrUnsupported)
	read := s.Function(func(rc *strategy.ReplicaContext, in []*graph.Node) (out []*graph.Node) {
		train.Averaged(rc, "train_step", func() {})
		return nil
	}, strategy.FunctionOptions{Store: store})
	_, err := read.Run(t.Context())
	assert.ErrorContains(t, err, `train: averages of step "train_step": the store has none; set Options.Average`)
}
