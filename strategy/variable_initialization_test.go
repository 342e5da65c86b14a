package strategy_test

import (
	"context"
	"testing"

	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/core/tensors"
	"github.com/gomlx/gomlx/ml/model"
	"github.com/gomlx/gomlx/ml/train/optimizer"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/internal/test/strategytest"
	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/strategy/train"
)

// hasValues returns the initialized variables of the store that have a value on the host. GoMLX
// sets the values of scalars such as the learning rate when it creates them.
func hasValues(store *model.Store) (paths []string) {
	for v := range store.IterVariables() {
		if v.HasValue() && !v.Shape().IsScalar() {
			paths = append(paths, v.Path())
		}
	}
	return paths
}

// shapedStep returns a training step with a separate store, and counts its traces.
func shapedStep(s *strategy.TPUStrategy) (step *train.Step, store *model.Store, traces *int) {
	store, traces = model.NewStore(), new(int)
	store.SetParam(model.ParamInitialSeed, int64(42))
	loss := strategytest.Annotated(s.NumLogicalDevices())
	return strategytest.OK(train.New(s, store, optimizer.Adam().LearningRate(0.01).Done(),
		func(rc *strategy.ReplicaContext, in []*graph.Node) *graph.Node {
			*traces++
			return loss(rc, in)
		}, train.Options{})), store, traces
}

func TestAVariableOfACompiledStepArrivesWhenItIsReadOrAssigned(t *testing.T) {
	ctx := context.Background()
	s := strategytest.New(t, 2, 2, strategy.Options{Variables: strategytest.AnnotatedRules(2)})
	x, y := strategytest.BatchShapes(32)
	xs, ys := strategytest.Batch(0)
	reference, referenceStore, _ := shapedStep(s)
	_, err := reference.Bind(ctx, xs, ys)
	require.NoError(t, err)
	const path = "/hidden/dense/weights"
	first := referenceStore.GetVariable(path).MustValue().Value()

	for name, use := range map[string]func(*testing.T, *strategy.Variables, *strategy.Variable){
		"value": func(t *testing.T, _ *strategy.Variables, v *strategy.Variable) {
			value, err := v.Value(ctx)
			require.NoError(t, err)
			assert.Equal(t, first, value.Value())
		},
		"part": func(t *testing.T, _ *strategy.Variables, v *strategy.Variable) {
			part, err := v.LocalShard(ctx, 1, 1)
			require.NoError(t, err)
			assert.Equal(t, []int{v.Shape().Dimensions[0], v.Shape().Dimensions[1] / 2}, part.Shape().Dimensions)
		},
		"ready": func(t *testing.T, _ *strategy.Variables, v *strategy.Variable) { require.NoError(t, v.Ready(ctx)) },
		"on the devices": func(t *testing.T, _ *strategy.Variables, v *strategy.Variable) {
			m, err := v.Read(ctx)
			require.NoError(t, err)
			value, err := m.Value(ctx)
			require.NoError(t, err)
			assert.Equal(t, first, value.Value())
		},
		"pulled": func(t *testing.T, vs *strategy.Variables, _ *strategy.Variable) { require.NoError(t, vs.Pull(ctx)) },
		"pushed": func(t *testing.T, vs *strategy.Variables, v *strategy.Variable) {
			require.NoError(t, vs.Push(ctx), "variables arrive with the store's values")
		},
		"assigned": func(t *testing.T, _ *strategy.Variables, v *strategy.Variable) {
			twos := tensors.FromScalarAndDimensions(float32(2), v.Shape().Dimensions...)
			require.NoError(t, v.Assign(ctx, twos))
			value, err := v.Value(ctx)
			require.NoError(t, err)
			assert.Equal(t, twos.Value(), value.Value())
		},
	} {
		t.Run(name, func(t *testing.T) {
			step, store, _ := shapedStep(s)
			_, err := step.Compiled(ctx, x, y)
			require.NoError(t, err)
			vs := s.Variables(store)
			v, ok := vs.Lookup(path)
			require.True(t, ok)
			use(t, vs, v)
			_, err = step.Run(ctx, xs, ys)
			require.NoError(t, err)
		})
	}
}
