package train_test

import (
	"bytes"
	"context"
	"fmt"
	"testing"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/ml/layers"
	"github.com/gomlx/gomlx/ml/model"
	"github.com/gomlx/gomlx/ml/model/initializer"
	"github.com/gomlx/gomlx/ml/train/optimizer"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/internal/test/plugintest"
	"github.com/tpustrategy/tpustrategy/internal/test/strategytest"
	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/strategy/stepfile"
	"github.com/tpustrategy/tpustrategy/strategy/train"
)

// guarded returns a training step over variables of the scope, of the store and of each replica,
// and a function that reads them all.
func guarded(t *testing.T, s *strategy.TPUStrategy, mode train.NonFinite) (*model.Store, *train.Step, func() string) {
	ctx := context.Background()
	w, err := s.NewVariable(ctx, strategytest.LinearW, strategy.VariableOptions{Name: "w", Annotation: logical.SplitInto(1,
		s.NumLogicalDevices())})
	require.NoError(t, err)
	seen, err := s.NewVariable(ctx, float32(0), strategy.VariableOptions{Name: "seen", Synchronization: strategy.OnRead,
		Aggregation: strategy.AggregateSum})
	require.NoError(t, err)
	store := model.NewStore()
	step := strategytest.OK(train.New(s, store, optimizer.Adam().LearningRate(0.1).Done(),
		func(rc *strategy.ReplicaContext, in []*graph.Node) *graph.Node {
			rc.AssignAdd(seen, graph.ReduceAllSum(in[0]))
			b := rc.Scope().WithInitializer(initializer.Zero).VariableWithShape("b", shapes.Make(dtypes.Float32,
				2)).NodeValue(rc.Graph())
			return strategytest.Linear(rc.Read(w), b, in)
		}, train.Options{NonFinite: mode}))
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
			s := strategytest.New(t, mesh[0], mesh[1])
			_, step, state := guarded(t, s, train.Skip)
			run := func(x [][]float32) {
				_, err := step.Run(ctx, x, strategytest.LinearY)
				require.NoError(t, err)
			}
			run(strategytest.LinearX)
			before := state()
			run(badX) // only the rows of one replica
			assert.Equal(t, before, state())
			n, err := step.NonFinite(ctx)
			require.NoError(t, err)
			assert.Equal(t, train.NonFiniteSteps{Steps: 2, Skipped: 1, Last: 2, What: "the loss"}, n)
			run(strategytest.LinearX)
			assert.NotEqual(t, before, state())

			_, err = step.RunSteps(ctx, []any{badX, strategytest.LinearY}, []any{strategytest.LinearX, strategytest.LinearY},
				[]any{badX, strategytest.LinearY})
			require.NoError(t, err)
			n, err = step.NonFinite(ctx)
			require.NoError(t, err)
			assert.Equal(t, train.NonFiniteSteps{Steps: 6, Skipped: 3, Last: 6, What: "the loss"}, n)

			// The finite steps alone have the same result.
			other := strategytest.New(t, mesh[0], mesh[1])
			_, plain, _ := guarded(t, other, train.Apply)
			for range 3 {
				_, err := plain.Run(ctx, strategytest.LinearX, strategytest.LinearY)
				require.NoError(t, err)
			}
			for i, v := range s.DistributedVariables() {
				assert.InDeltaSlice(t, strategytest.Flat(t, other.DistributedVariables()[i]), strategytest.Flat(t, v), 1e-5,
					v.Path())
			}
			_, err = plain.NonFinite(ctx)
			require.ErrorContains(t, err, "set Options.NonFinite")

			require.NoError(t, step.ResetNonFinite(ctx))
			n, err = step.NonFinite(ctx)
			require.NoError(t, err)
			assert.Zero(t, n)
		})
	}
}

func TestStepsThatAreNotFiniteStop(t *testing.T) {
	ctx := context.Background()
	s := strategytest.New(t, 2, 2)
	store, step, state := guarded(t, s, train.Stop)
	_, err := step.Run(ctx, strategytest.LinearX, strategytest.LinearY)
	require.NoError(t, err)
	before := state()
	stopped := func(err error, at int64) {
		t.Helper()
		var stop *train.NonFiniteError
		require.ErrorAs(t, err, &stop)
		assert.Equal(t, train.NonFiniteError{Function: "train_step", Step: at, What: "the loss"}, *stop)
		assert.Equal(t, before, state())
	}
	_, err = step.Run(ctx, badX, strategytest.LinearY)
	stopped(err, 2)
	_, err = step.Run(ctx, strategytest.LinearX, strategytest.LinearY)
	stopped(err, 2)
	bound, err := step.Bind(ctx, strategytest.LinearX, strategytest.LinearY)
	require.NoError(t, err)
	stopped(bound.Launch(ctx), 2)
	require.NoError(t, bound.Close())
	require.NoError(t, step.ResetNonFinite(ctx))
	_, err = step.RunSteps(ctx, []any{badX, strategytest.LinearY}, []any{strategytest.LinearX, strategytest.LinearY})
	stopped(err, 1)

	// A step from a file also stops, even with a store without counts.
	require.NoError(t, step.ResetNonFinite(ctx))
	compiled, err := step.Compiled(ctx, strategytest.LinearX, strategytest.LinearY)
	require.NoError(t, err)
	var file bytes.Buffer
	require.NoError(t, stepfile.Save(t.Context(), &file, compiled))
	loaded, err := stepfile.LoadTrain(ctx, s, &file, store)
	require.NoError(t, err)
	_, err = loaded.Run(ctx, strategytest.LinearX, strategytest.LinearY)
	require.NoError(t, err)
	before = state()
	_, err = loaded.Run(ctx, badX, strategytest.LinearY)
	stopped(err, 2)
}

// The steps compile for TPUs, also for an uneven batch and with a variable of the scope.
func TestStepsThatLookForNonFiniteCompileAheadOfTime(t *testing.T) {
	if !plugintest.TPUChild(t) {
		return
	}
	ctx := context.Background()
	s := strategytest.Ahead(t, "v5e:2x2", strategy.Options{Replicas: 2, LogicalDevices: 2})
	for _, mode := range []train.NonFinite{train.Skip, train.Stop} {
		for _, rows := range []int{4, 3} {
			step := strategytest.OK(train.New(s, model.NewStore(), optimizer.Adam().Done(), func(rc *strategy.ReplicaContext,
				in []*graph.Node) *graph.Node {
				return strategytest.Linear(rc.Scope().VariableWithValue("w", strategytest.LinearW).NodeValue(rc.Graph()),
					rc.Scope().VariableWithValue("b", []float32{0, 0}).NodeValue(rc.Graph()), in)
			}, train.Options{NonFinite: mode}))
			x := shapes.Make(dtypes.Float32, rows, 2)
			compiled, err := step.Compiled(ctx, x, x)
			require.NoError(t, err, "%s of %d rows", mode, rows)
			var file bytes.Buffer
			require.NoError(t, stepfile.Save(t.Context(), &file, compiled))
			assert.NotEmpty(t, file.Bytes())
		}
	}
}

// An unknown mode must not silently disable the check.
func TestAnUnknownWayWithNonFiniteStepsIsRefused(t *testing.T) {
	s := strategytest.New(t, 1, 1)
	for _, way := range []train.NonFinite{99, -1, train.Stop + 1} {
		_, err := train.New(s, strategytest.SeededStore(), optimizer.Adam().Done(), func(rc *strategy.ReplicaContext,
			in []*graph.Node) *graph.Node {
			return graph.ReduceAllMean(layers.Dense(rc.Scope(), in[0], true, 1))
		}, train.Options{NonFinite: way})
		require.ErrorContains(t, err, way.String())
		assert.Equal(t, errkind.ValueError, errkind.KindOf(err))
	}
}
