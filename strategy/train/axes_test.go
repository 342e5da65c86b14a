package train_test

import (
	"context"
	"fmt"
	"math"
	"testing"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/gomlx/core/tensors"
	"github.com/gomlx/gomlx/ml/train/optimizer"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/internal/test/plugintest"
	"github.com/tpustrategy/tpustrategy/internal/test/strategytest"
	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/report"
	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/strategy/train"
)

func TestTrainingOverNamedAxesIsTheSameOnEveryMesh(t *testing.T) {
	const steps = 6
	sys := plugintest.System(t, 8)
	ctx := context.Background()
	var wantLosses []float64
	var want map[string]*tensors.Tensor
	for _, mesh := range []struct {
		replicas int
		axes     []string
	}{{1, nil}, {1, []string{"model", "sequence", "expert"}}, {2, []string{"model", "sequence"}},
		{2, []string{"expert", "model"}}, {4, []string{"model"}}} {
		t.Run(fmt.Sprint(mesh), func(t *testing.T) {
			strat := strategytest.On(t, sys, strategytest.NamedOptions(mesh.replicas, strategytest.Axes(mesh.axes...)...))
			store := strategytest.SeededStore()
			// The batch is sharded.
			step := strategytest.OK(train.New(strat, store, optimizer.Adam().LearningRate(0.01).Done(), strategytest.Named,
				train.Options{Arguments: []logical.Annotation{
					strategytest.Over(strat.LogicalMesh(), "", "sequence"), strategytest.Over(strat.LogicalMesh(), "", "sequence",
						"model")}}))
			var losses []float64
			batches := make([][]any, steps)
			for i := range batches {
				x, y := strategytest.NamedBatch(i)
				batches[i] = []any{x, y}
				if looped := mesh.replicas == 2 && mesh.axes[0] == "model"; i < steps-2 || !looped {
					loss, err := step.Run(ctx, x, y)
					require.NoError(t, err)
					losses = append(losses, strategytest.Float64(t, loss))
				}
			}
			if len(losses) < steps {
				loss, err := step.RunSteps(ctx, batches[steps-2:]...)
				require.NoError(t, err)
				losses = append(losses, math.NaN(), strategytest.Float64(t, loss))
			}
			got := map[string]*tensors.Tensor{}
			for _, v := range strat.Variables(store).All() {
				value, err := v.Value(ctx)
				require.NoError(t, err)
				got[v.Path()] = value
			}
			if want == nil {
				wantLosses, want = losses, got
				require.Less(t, losses[len(losses)-1], losses[0])
				return
			}
			for i := range losses {
				if math.IsNaN(losses[i]) {
					continue // in the loop
				}
				require.InDelta(t, wantLosses[i], losses[i], 1e-5*math.Abs(wantLosses[i])+1e-6, "loss of step %d", i)
			}
			require.Len(t, got, len(want))
			for path, value := range want {
				if value.DType() == dtypes.Float32 {
					require.True(t, value.InDelta(got[path], 2e-5), "%s:\n%s\n%s", path, value, got[path])
				}
			}
		})
	}
}

// The rules combine the axis of the replicas with logical axes.
func TestRulesShareOutVariablesAmongTheReplicas(t *testing.T) {
	sys := plugintest.System(t, 8)
	run := func(t *testing.T, opt optimizer.Interface, opts strategy.Options) (losses []float64,
		vars *strategy.Variables) {
		s := strategytest.On(t, sys, opts)
		store := strategytest.SeededStore()
		step := strategytest.OK(train.New(s, store, opt, strategytest.Named, train.Options{}))
		return strategytest.NamedLosses(t, step, 0, 5), s.Variables(store)
	}
	for name, opt := range map[string]func() optimizer.Interface{
		"adam": func() optimizer.Interface { return optimizer.Adam().LearningRate(0.01).Done() },
		"sgd": func() optimizer.Interface {
			return optimizer.StochasticGradientDescent().WithDecay(false).WithLearningRate(0.1).Done()
		},
	} {
		want, wantVars := run(t, opt(), strategy.Options{Replicas: 1, LogicalDevices: 1})
		for _, c := range []struct {
			replicas int
			axes     []string
			up       []int // shape of a device's shard of an 8 x 16 variable
		}{{2, []string{"model", "sequence"}, []int{4, 8}}, {4, []string{"model"}, []int{2, 8}}, {8, nil, []int{1, 16}}} {
			if name == "sgd" && c.replicas != 4 {
				continue
			}
			t.Run(fmt.Sprint(name, c.replicas, c.axes), func(t *testing.T) {
				axes := strategytest.Axes(c.axes...)
				mesh, err := logical.NewMesh(0, axes...)
				require.NoError(t, err)
				rules := logical.Rules{
					logical.Match(`tokens/embeddings`, strategytest.Over(mesh, "model", "replica")),
					logical.Match(`up/.*weights`, strategytest.Over(mesh, "replica", "model")),
					logical.Match(`up/.*biases`, logical.SplitOverAxes("replica")),
					logical.Match(`(key|out)/.*weights`, strategytest.Over(mesh, "", "replica")),
				}
				if c.replicas == 4 { // the same with two rules that are combined
					rules[1].Annotation = strategytest.Over(mesh, "", "model")
					rules = append(rules, logical.Rule{Pattern: rules[1].Pattern, Largest: []string{logical.ReplicaAxis},
						MinElements: 1})
				}
				losses, vars := run(t, opt(), strategy.Options{Replicas: c.replicas, LogicalAxes: axes, Variables: rules})
				assert.InDeltaSlice(t, want, losses, 1e-5)
				for _, v := range wantVars.All() {
					got, ok := vars.Lookup(v.Path())
					require.True(t, ok, v.Path())
					value, err := v.Value(t.Context())
					require.NoError(t, err)
					gotten, err := got.Value(t.Context())
					require.NoError(t, err)
					if value.DType().IsFloat() {
						assert.True(t, value.InDelta(gotten, 1e-4), "%s: %s, not %s", v.Path(), gotten, value)
					}
				}
				paths := []string{"/up/dense/weights"}
				if name == "adam" {
					paths = append(paths, "/AdamOptimizer/up/dense/weights_1st_moment")
				}
				for _, path := range paths {
					v, ok := vars.Lookup(path)
					require.True(t, ok, path)
					assert.Equal(t, c.up, v.Shards()[0].Size, path)
				}
			})
		}
	}
}

func TestAPartialSplitTakesTheMemoryOfItsParts(t *testing.T) {
	ctx := context.Background()
	strat := strategytest.On(t, plugintest.System(t, 4), strategytest.NamedOptions(1, strategytest.Axes("model",
		"sequence")...))
	store := strategytest.SeededStore()
	step := strategytest.OK(train.New(strat, store, optimizer.Adam().LearningRate(0.01).Done(), strategytest.Named,
		train.Options{}))
	x, y := strategytest.NamedBatch(0)
	compiled, err := step.Compiled(ctx, x, y)
	require.NoError(t, err)
	assert.Contains(t, string(compiled.Module.Text), `sdy.mesh @mesh = <["replica"=1, "model"=2, "sequence"=2]>`)
	_, err = step.Run(ctx, x, y)
	require.NoError(t, err)
	r, err := report.Of(compiled)
	require.NoError(t, err)
	assert.Equal(t, "replica=1,model=2,sequence=2", r.Mesh)
	copies, sizes := map[string]int{}, map[string][]int{}
	for _, tensor := range r.Tensors {
		if tensor.Role == "variable" {
			copies[tensor.Name], sizes[tensor.Name] = tensor.Copies, tensor.Shard
		}
	}
	assert.Equal(t, 1, copies["/tokens/embeddings"])
	assert.Equal(t, []int{4, 8}, sizes["/tokens/embeddings"])
	assert.Equal(t, 2, copies["/query/dense/weights"])
	assert.Equal(t, []int{8, 4}, sizes["/query/dense/weights"])
	assert.Equal(t, 4, copies["/down/dense/biases"])
	for _, axis := range []string{"model", "sequence"} {
		bytes, _ := r.CollectiveBytes(axis)
		assert.Positive(t, bytes, "%s: %+v", axis, r.Collectives)
	}
	var starts [][]int
	for _, v := range strat.Variables(store).All() {
		if v.Path() == "/query/dense/weights" {
			for _, shard := range v.Shards() {
				starts = append(starts, shard.Start)
			}
		}
	}
	assert.Equal(t, [][]int{{0, 0}, {0, 0}, {0, 4}, {0, 4}}, starts)
}
