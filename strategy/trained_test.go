package strategy_test

import (
	"bytes"
	"context"
	"fmt"
	"testing"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/core/tensors"
	"github.com/gomlx/gomlx/ml/model"
	"github.com/gomlx/gomlx/ml/model/initializer"
	"github.com/gomlx/gomlx/ml/train/optimizer"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/strategy"
)

func flat(t testing.TB, v *strategy.Variable) []float32 {
	t.Helper()
	value, err := v.Value(context.Background())
	require.NoError(t, err)
	return tensors.MustCopyFlatData[float32](value)
}

var (
	firstW = [][]float32{{0.5, -1}, {0.25, 2}}
	trainX = [][]float32{{1, 2}, {-3, 1}, {0.5, -1}, {2, 2}}
	trainY = [][]float32{{1, 0}, {0, 1}, {-1, 2}, {2, 1}}
)

func squares(w, b *graph.Node, in []*graph.Node) *graph.Node {
	return graph.ReduceAllMean(graph.Square(graph.Sub(graph.Add(graph.MatMul(in[0], w), graph.ExpandLeftToRank(b, 2)), in[1])))
}

// TestVariablesOfTheScopeAreTrained trains a variable of the scope and one of the store
// to the numbers of two of the store.
func TestVariablesOfTheScopeAreTrained(t *testing.T) {
	ctx := context.Background()
	no := false
	optimizers := map[string]func() optimizer.Interface{
		"adam": func() optimizer.Interface { return optimizer.Adam().LearningRate(0.1).WeightDecay(0.1).Done() },
		"sgd":  func() optimizer.Interface { return optimizer.StochasticGradientDescent().WithLearningRate(0.1).Done() },
	}
	for name, opt := range optimizers {
		want := func() (w, b []float32) {
			s := newStrategy(t, 1, strategy.Options{})
			store := model.NewStore()
			step := s.TrainStep(store, opt(), func(rc *strategy.ReplicaContext, in []*graph.Node) *graph.Node {
				return squares(rc.Scope().VariableWithValue("w", firstW).NodeValue(rc.Graph()), rc.Scope().VariableWithValue("b", []float32{0, 0}).NodeValue(rc.Graph()), in)
			})
			for range 3 {
				_, err := step.Run(ctx, trainX, trainY)
				require.NoError(t, err)
			}
			for _, v := range s.Variables(store).All() {
				switch v.Path() {
				case "/w":
					w = flat(t, v)
				case "/b":
					b = flat(t, v)
				}
			}
			return w, b
		}
		wantW, wantB := want()
		for _, mesh := range [][2]int{{1, 1}, {2, 1}, {2, 2}} {
			t.Run(fmt.Sprintf("%s on %dx%d", name, mesh[0], mesh[1]), func(t *testing.T) {
				s := newStrategy(t, mesh[0]*mesh[1], strategy.Options{Replicas: mesh[0], LogicalDevices: mesh[1]})
				w, err := s.NewVariable(ctx, firstW, strategy.VariableOptions{Name: "w", Annotation: logical.SplitInto(1, mesh[1])})
				require.NoError(t, err)
				frozen, err := s.NewVariable(ctx, float32(0), strategy.VariableOptions{Name: "frozen", Trainable: &no})
				require.NoError(t, err)
				count, err := s.NewVariable(ctx, int32(0), strategy.VariableOptions{Name: "count"})
				require.NoError(t, err)
				store := model.NewStore()
				step := s.TrainStep(store, opt(), func(rc *strategy.ReplicaContext, in []*graph.Node) *graph.Node {
					b := rc.Scope().VariableWithValue("b", []float32{0, 0}).NodeValue(rc.Graph())
					l := squares(rc.Read(w), b, in)
					return graph.Add(l, graph.Add(rc.Read(frozen), graph.ConvertDType(rc.Read(count), dtypes.Float32)))
				})
				for range 3 {
					_, err := step.Run(ctx, trainX, trainY)
					require.NoError(t, err)
				}
				assert.InDeltaSlice(t, wantW, flat(t, w), 1e-5)
				assert.Equal(t, []float32{0}, flat(t, frozen))
				for v := range store.IterVariables() {
					assert.NotEqual(t, "/distributed/w", v.Path(), "the stand-in is gone")
				}
				for _, v := range s.Variables(store).All() {
					switch v.Path() {
					case "/b":
						assert.InDeltaSlice(t, wantB, flat(t, v), 1e-5)
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
	s := newStrategy(t, 2, strategy.Options{Replicas: 2})
	w, err := s.NewVariable(ctx, firstW, strategy.VariableOptions{Name: "/w"})
	require.NoError(t, err)
	other, err := s.NewVariable(ctx, []float32{0, 0}, strategy.VariableOptions{Name: "/w"})
	require.NoError(t, err)
	step := s.TrainStep(model.NewStore(), sgd(), func(rc *strategy.ReplicaContext, in []*graph.Node) *graph.Node {
		return squares(rc.Read(w), rc.Read(other), in)
	})
	before := flat(t, w)
	_, err = step.RunSteps(ctx, []any{trainX, trainY}, []any{trainX, trainY})
	require.NoError(t, err)
	assert.NotEqual(t, before, flat(t, w))
	assert.NotEqual(t, []float32{0, 0}, flat(t, other), "two variables may have one name")
}

func TestAVariableOfComponentsIsNotTrained(t *testing.T) {
	ctx := context.Background()
	yes := true
	s := newStrategy(t, 2, strategy.Options{Replicas: 2})
	w, err := s.NewVariable(ctx, firstW, strategy.VariableOptions{Name: "w", Synchronization: strategy.OnRead, Trainable: &yes})
	require.NoError(t, err)
	_, err = s.TrainStep(model.NewStore(), sgd(), func(rc *strategy.ReplicaContext, in []*graph.Node) *graph.Node {
		return graph.ReduceAllMean(graph.MatMul(in[0], rc.Read(w)))
	}).Run(ctx, trainX)
	require.ErrorContains(t, err, `Read "w": a training step cannot train a variable whose components differ`)
	var wrong *strategy.Error
	require.ErrorAs(t, err, &wrong)
	assert.Equal(t, strategy.ValueError, wrong.Kind())
}

// guarded is a training step over a variable of the scope, one of the store and one of
// each replica, and what reads them all.
func guarded(t *testing.T, s *strategy.TPUStrategy, mode strategy.NonFinite) (*model.Store, *strategy.TrainStep, func() string) {
	ctx := context.Background()
	w, err := s.NewVariable(ctx, firstW, strategy.VariableOptions{Name: "w", Annotation: logical.SplitInto(1, s.NumLogicalDevices())})
	require.NoError(t, err)
	seen, err := s.NewVariable(ctx, float32(0), strategy.VariableOptions{Name: "seen", Synchronization: strategy.OnRead, Aggregation: strategy.AggregateSum})
	require.NoError(t, err)
	store := model.NewStore()
	step := s.TrainStep(store, optimizer.Adam().LearningRate(0.1).Done(), func(rc *strategy.ReplicaContext, in []*graph.Node) *graph.Node {
		rc.AssignAdd(seen, graph.ReduceAllSum(in[0]))
		b := rc.Scope().WithInitializer(initializer.Zero).VariableWithShape("b", shapes.Make(dtypes.Float32, 2)).NodeValue(rc.Graph())
		return squares(rc.Read(w), b, in)
	}, strategy.TrainOptions{NonFinite: mode})
	return store, step, func() string {
		text := ""
		for _, v := range append(s.Variables(store).All(), w, seen) {
			if v.Path() != "/non_finite/train_step" {
				value, err := v.Value(ctx)
				require.NoError(t, err)
				text += v.Path() + value.GoStr() + "\n"
			}
		}
		return text
	}
}

var (
	nan  = float32(func() float64 { var zero float64; return zero / zero }())
	badX = [][]float32{{1, 2}, {-3, 1}, {0.5, -1}, {nan, 2}}
)

func TestStepsThatAreNotFiniteAreSkipped(t *testing.T) {
	ctx := context.Background()
	for _, mesh := range [][2]int{{1, 1}, {2, 1}, {2, 2}} {
		t.Run(fmt.Sprintf("%dx%d", mesh[0], mesh[1]), func(t *testing.T) {
			s := newStrategy(t, mesh[0]*mesh[1], strategy.Options{Replicas: mesh[0], LogicalDevices: mesh[1]})
			_, step, state := guarded(t, s, strategy.NonFiniteSkip)
			run := func(x [][]float32) {
				_, err := step.Run(ctx, x, trainY)
				require.NoError(t, err)
			}
			run(trainX)
			before := state()
			run(badX) // one replica's rows alone
			assert.Equal(t, before, state())
			n, err := step.NonFinite(ctx)
			require.NoError(t, err)
			assert.Equal(t, strategy.NonFiniteSteps{Steps: 2, Skipped: 1, Last: 2, What: "the loss"}, n)
			run(trainX)
			assert.NotEqual(t, before, state())

			_, err = step.RunSteps(ctx, []any{badX, trainY}, []any{trainX, trainY}, []any{badX, trainY})
			require.NoError(t, err)
			n, err = step.NonFinite(ctx)
			require.NoError(t, err)
			assert.Equal(t, strategy.NonFiniteSteps{Steps: 6, Skipped: 3, Last: 6, What: "the loss"}, n)

			// As many good steps alone come to the same.
			other := newStrategy(t, mesh[0]*mesh[1], strategy.Options{Replicas: mesh[0], LogicalDevices: mesh[1]})
			_, plain, _ := guarded(t, other, strategy.NonFiniteTaken)
			for range 3 {
				_, err := plain.Run(ctx, trainX, trainY)
				require.NoError(t, err)
			}
			for i, v := range s.DistributedVariables() {
				assert.InDeltaSlice(t, flat(t, other.DistributedVariables()[i]), flat(t, v), 1e-5, v.Path())
			}
			_, err = plain.NonFinite(ctx)
			require.ErrorContains(t, err, "set TrainOptions.NonFinite")

			require.NoError(t, step.ResetNonFinite(ctx))
			n, err = step.NonFinite(ctx)
			require.NoError(t, err)
			assert.Zero(t, n)
		})
	}
}

func TestStepsThatAreNotFiniteStop(t *testing.T) {
	ctx := context.Background()
	s := newStrategy(t, 4, strategy.Options{Replicas: 2, LogicalDevices: 2})
	store, step, state := guarded(t, s, strategy.NonFiniteStop)
	_, err := step.Run(ctx, trainX, trainY)
	require.NoError(t, err)
	before := state()
	stopped := func(err error, at int64) {
		t.Helper()
		var stop *strategy.NonFiniteError
		require.ErrorAs(t, err, &stop)
		assert.Equal(t, strategy.NonFiniteError{Function: "train_step", Step: at, What: "the loss"}, *stop)
		assert.Equal(t, before, state())
	}
	_, err = step.Run(ctx, badX, trainY)
	stopped(err, 2)
	_, err = step.Run(ctx, trainX, trainY)
	stopped(err, 2)
	bound, err := step.Bind(ctx, trainX, trainY)
	require.NoError(t, err)
	stopped(bound.Launch(ctx), 2)
	require.NoError(t, bound.Close())
	require.NoError(t, step.ResetNonFinite(ctx))
	_, err = step.RunSteps(ctx, []any{badX, trainY}, []any{trainX, trainY})
	stopped(err, 1)

	// A step from a file stops too, also over a store that has not counted yet.
	require.NoError(t, step.ResetNonFinite(ctx))
	compiled, err := step.Compiled(ctx, trainX, trainY)
	require.NoError(t, err)
	var file bytes.Buffer
	require.NoError(t, compiled.Save(&file))
	loaded, err := s.LoadTrainStep(ctx, &file, store)
	require.NoError(t, err)
	_, err = loaded.Run(ctx, trainX, trainY)
	require.NoError(t, err)
	before = state()
	_, err = loaded.Run(ctx, badX, trainY)
	stopped(err, 2)
}

func TestTheGradientThatIsNotFiniteIsNamed(t *testing.T) {
	ctx := context.Background()
	s := newStrategy(t, 2, strategy.Options{Replicas: 2})
	w, err := s.NewVariable(ctx, float32(0), strategy.VariableOptions{Name: "root"})
	require.NoError(t, err)
	_, err = s.TrainStep(model.NewStore(), sgd(), func(rc *strategy.ReplicaContext, in []*graph.Node) *graph.Node {
		b := rc.Scope().VariableWithValue("b", float32(1)).NodeValue(rc.Graph())
		return graph.ReduceAllMean(graph.Add(graph.Mul(in[0], b), graph.Sqrt(rc.Read(w)))) // of infinite slope at 0
	}, strategy.TrainOptions{NonFinite: strategy.NonFiniteStop}).Run(ctx, []float32{1, 2})
	require.ErrorContains(t, err, `train_step: step 1 was not taken, as the gradient of "root" is not finite`)
	assert.Equal(t, []float32{0}, flat(t, w))
}
