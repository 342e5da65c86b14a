package strategy_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/ml/model"
	"github.com/gomlx/gomlx/ml/train/optimizer"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/internal/test/strategytest"
	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/strategy/train"
)

// TestVariablesOfTheScopeAreTrained trains a variable of NewVariable and a variable of the store.
// The results must equal the training of two variables of the store.
func TestVariablesOfTheScopeAreTrained(t *testing.T) {
	ctx := context.Background()
	no := false
	optimizers := map[string]func() optimizer.Interface{
		"adam": func() optimizer.Interface { return optimizer.Adam().LearningRate(0.1).WeightDecay(0.1).Done() },
		"sgd":  func() optimizer.Interface { return optimizer.StochasticGradientDescent().WithLearningRate(0.1).Done() },
	}
	for name, opt := range optimizers {
		want := func() (w, b []float32) {
			s := strategytest.New(t, 1, 1)
			store := model.NewStore()
			step := strategytest.OK(train.New(s, store, opt(), func(rc *strategy.ReplicaContext, in []*graph.Node) *graph.Node {
				return strategytest.Linear(rc.Scope().VariableWithValue("w", strategytest.LinearW).NodeValue(rc.Graph()),
					rc.Scope().VariableWithValue("b", []float32{0, 0}).NodeValue(rc.Graph()), in)
			}, train.Options{}))
			for range 3 {
				_, err := step.Run(ctx, strategytest.LinearX, strategytest.LinearY)
				require.NoError(t, err)
			}
			for _, v := range s.Variables(store).All() {
				switch v.Path() {
				case "/w":
					w = strategytest.Flat(t, v)
				case "/b":
					b = strategytest.Flat(t, v)
				}
			}
			return w, b
		}
		wantW, wantB := want()
		for _, mesh := range [][2]int{{1, 1}, {2, 1}, {2, 2}} {
			t.Run(fmt.Sprintf("%s on %dx%d", name, mesh[0], mesh[1]), func(t *testing.T) {
				s := strategytest.New(t, mesh[0], mesh[1])
				w, err := s.NewVariable(ctx, strategytest.LinearW, strategy.VariableOptions{Name: "w",
					Annotation: logical.SplitInto(1, mesh[1])})
				require.NoError(t, err)
				frozen, err := s.NewVariable(ctx, float32(0), strategy.VariableOptions{Name: "frozen", Trainable: &no})
				require.NoError(t, err)
				count, err := s.NewVariable(ctx, int32(0), strategy.VariableOptions{Name: "count"})
				require.NoError(t, err)
				store := model.NewStore()
				step := strategytest.OK(train.New(s, store, opt(), func(rc *strategy.ReplicaContext, in []*graph.Node) *graph.Node {
					b := rc.Scope().VariableWithValue("b", []float32{0, 0}).NodeValue(rc.Graph())
					l := strategytest.Linear(rc.Read(w), b, in)
					return graph.Add(l, graph.Add(rc.Read(frozen), graph.ConvertDType(rc.Read(count), dtypes.Float32)))
				}, train.Options{}))
				for range 3 {
					_, err := step.Run(ctx, strategytest.LinearX, strategytest.LinearY)
					require.NoError(t, err)
				}
				assert.InDeltaSlice(t, wantW, strategytest.Flat(t, w), 1e-5)
				assert.Equal(t, []float32{0}, strategytest.Flat(t, frozen))
				for v := range store.IterVariables() {
					assert.NotEqual(t, "/distributed/w", v.Path(), "the proxy is gone")
				}
				for _, v := range s.Variables(store).All() {
					switch v.Path() {
					case "/b":
						assert.InDeltaSlice(t, wantB, strategytest.Flat(t, v), 1e-5)
					case "/AdamOptimizer/distributed/w_1st_moment", "/AdamOptimizer/distributed/w_2nd_moment":
						assert.Equal(t, w.Annotation(), v.Annotation(), "the moments are split as the variable is")
					}
				}
			})
		}
	}
}

func TestOnlyVariablesOfTheScope(t *testing.T) {
	ctx := context.Background()
	s := strategytest.New(t, 2, 1)
	w, err := s.NewVariable(ctx, strategytest.LinearW, strategy.VariableOptions{Name: "/w"})
	require.NoError(t, err)
	other, err := s.NewVariable(ctx, []float32{0, 0}, strategy.VariableOptions{Name: "/w"})
	require.NoError(t, err)
	step := strategytest.OK(train.New(s, model.NewStore(), optimizer.StochasticGradientDescent().Done(),
		func(rc *strategy.ReplicaContext, in []*graph.Node) *graph.Node {
			return strategytest.Linear(rc.Read(w), rc.Read(other), in)
		}, train.Options{}))
	before := strategytest.Flat(t, w)
	_, err = step.RunSteps(ctx, []any{strategytest.LinearX, strategytest.LinearY}, []any{strategytest.LinearX,
		strategytest.LinearY})
	require.NoError(t, err)
	assert.NotEqual(t, before, strategytest.Flat(t, w))
	assert.NotEqual(t, []float32{0, 0}, strategytest.Flat(t, other), "two variables may have one name")
}

func TestAVariableOfComponentsIsNotTrained(t *testing.T) {
	ctx := context.Background()
	yes := true
	s := strategytest.New(t, 2, 1)
	w, err := s.NewVariable(ctx, strategytest.LinearW, strategy.VariableOptions{Name: "w",
		Synchronization: strategy.OnRead, Trainable: &yes})
	require.NoError(t, err)
	_, err = strategytest.OK(train.New(s, model.NewStore(), optimizer.StochasticGradientDescent().Done(),
		func(rc *strategy.ReplicaContext, in []*graph.Node) *graph.Node {
			return graph.ReduceAllMean(graph.MatMul(in[0], rc.Read(w)))
		}, train.Options{})).Run(ctx, strategytest.LinearX)
	require.ErrorContains(t, err, `Read "w": a training step cannot train a variable whose components differ`)
	var wrong *strategy.Error
	require.ErrorAs(t, err, &wrong)
	assert.Equal(t, errkind.ValueError, wrong.Kind())
}
