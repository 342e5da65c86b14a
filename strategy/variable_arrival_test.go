package strategy_test

import (
	"context"
	"testing"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/core/tensors"
	"github.com/gomlx/gomlx/ml/layers"
	"github.com/gomlx/gomlx/ml/model"
	"github.com/gomlx/gomlx/ml/train/optimizer"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/internal/strategytest"
	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/strategy/train"
)

// hasValues says which of the store's variables that are initialized have a value on
// the host. GoMLX gives scalars such as the learning rate theirs as it makes them.
func hasValues(store *model.Store) (paths []string) {
	for v := range store.IterVariables() {
		if v.HasValue() && !v.Shape().IsScalar() {
			paths = append(paths, v.Path())
		}
	}
	return paths
}

// shapedStep is a training step over a store of its own, and counts its traces.
func shapedStep(s *strategy.TPUStrategy) (step *train.Step, store *model.Store, traces *int) {
	store, traces = model.NewStore(), new(int)
	store.SetParam(model.ParamInitialSeed, int64(42))
	loss := strategytest.Annotated(s.NumLogicalDevices())
	return train.New(s, store, optimizer.Adam().LearningRate(0.01).Done(), func(rc *strategy.ReplicaContext, in []*graph.Node) *graph.Node {
		*traces++
		return loss(rc, in)
	}), store, traces
}

func TestAStepOfAnOpenedSystemIsCompiledFromShapes(t *testing.T) {
	ctx := context.Background()
	s := strategytest.New(t, 4, 2, strategy.Options{Variables: strategytest.AnnotatedRules(2)})
	step, store, traces := shapedStep(s)
	x, y := strategytest.BatchShapes(32)
	compiled, err := step.Compiled(ctx, x, y)
	require.NoError(t, err)
	require.NotNil(t, compiled.Executable)
	_, err = compiled.Report()
	require.NoError(t, err)
	assert.Empty(t, hasValues(store), "variables that were given a value to compile")

	// The same step made and run as ever.
	other, _, _ := shapedStep(s)
	xs, ys := strategytest.Batch(0)
	require.Equal(t, x, xs.Shape())
	for range 3 {
		want, err := other.Run(ctx, xs, ys)
		require.NoError(t, err)
		wanted, err := want.Float64(ctx)
		require.NoError(t, err)
		loss, err := step.Run(ctx, xs, ys)
		require.NoError(t, err)
		got, err := loss.Float64(ctx)
		require.NoError(t, err)
		assert.Equal(t, wanted, got)
	}
	assert.Equal(t, 1, *traces, "traces: the run takes the program that was compiled from shapes")
	assert.NotEmpty(t, hasValues(store))
}

func TestALoopOfAnOpenedSystemIsCompiledFromShapes(t *testing.T) {
	ctx := context.Background()
	s := strategytest.New(t, 2, 2)
	step, store, traces := shapedStep(s)
	x, y := strategytest.BatchShapes(32)
	const n = 3
	xs, err := s.StackBatches(ctx, []any{x, x, x}, logical.Annotation{})
	require.NoError(t, err)
	ys, err := s.StackBatches(ctx, []any{y, y, y}, logical.Annotation{})
	require.NoError(t, err)
	_, err = step.Compiled(ctx, xs, ys)
	require.NoError(t, err)
	assert.Empty(t, hasValues(store))

	other, _, _ := shapedStep(s)
	assert.Equal(t, strategytest.LoopLosses(t, other, n, 2), strategytest.LoopLosses(t, step, n, 2))
	assert.Equal(t, 1, *traces)

	_, err = step.Bind(ctx, xs, ys)
	var wrong *strategy.ArgumentError
	require.ErrorAs(t, err, &wrong)
	assert.Contains(t, err.Error(), "made of shapes, which have no contents")
	assert.ErrorContains(t, xs.Ready(ctx), "made of shapes, which have no contents")
	_, err = s.StackBatches(ctx, []any{x, shapes.Make(dtypes.Float32, 16, 8)}, logical.Annotation{})
	assert.ErrorContains(t, err, "a loop has one shape for all")
}

func TestANestFunctionAndAFunctionAreCompiledFromShapes(t *testing.T) {
	ctx := context.Background()
	s := strategytest.New(t, 2, 2)
	traces := 0
	nest := s.NestFunction(func(_ *strategy.ReplicaContext, args []any) any {
		traces++
		in := args[0].(map[string]any)
		return map[string]any{"sum": graph.Add(in["a"].(*graph.Node), in["b"].(*graph.Node))}
	}, strategy.FunctionOptions{SplitBatch: true})
	shape := shapes.Make(dtypes.Float32, 4, 3)
	_, err := nest.Compiled(ctx, map[string]any{"a": shape, "b": shape})
	require.NoError(t, err)
	value := [][]float32{{1, 2, 3}, {4, 5, 6}, {7, 8, 9}, {1, 2, 3}}
	_, err = nest.Run(ctx, map[string]any{"a": value, "b": value})
	require.NoError(t, err)
	assert.Equal(t, 1, traces)

	_, err = nest.Run(ctx, map[string]any{"a": shape, "b": value})
	require.ErrorContains(t, err, `args[0][a]`)
	assert.ErrorContains(t, err, "give a tensor; Compiled and Lowered take shapes")

	f := s.Function(func(_ *strategy.ReplicaContext, in []*graph.Node) []*graph.Node {
		return []*graph.Node{graph.MulScalar(in[0], 2)}
	}, strategy.FunctionOptions{SplitBatch: true})
	m, err := f.Lowered(ctx, shape)
	require.NoError(t, err)
	assert.Equal(t, []int{2, 3}, m.Arguments[0].Local)
	_, err = f.Run(ctx, shape)
	require.ErrorContains(t, err, "a shape, which has no contents")
	_, err = f.Compiled(ctx, shapes.Make(dtypes.Float32, 3, 3))
	assert.ErrorContains(t, err, "a batch of 3 rows does not divide among 2 replicas")
	_, err = f.Compiled(ctx, shapes.Shape{})
	assert.Error(t, err)

	mirrored := s.Function(func(_ *strategy.ReplicaContext, in []*graph.Node) []*graph.Node { return in }, strategy.FunctionOptions{})
	_, err = mirrored.Compiled(ctx, shape)
	assert.NoError(t, err)
	_, err = mirrored.Run(ctx, value)
	assert.NoError(t, err)
}

func TestAModelLargerThanTheMachineIsCompiledOnAnOpenedSystem(t *testing.T) {
	ctx := context.Background()
	s := strategytest.New(t, 2, 2, strategy.Options{Variables: logical.Rules{logical.Match(`weights`, logical.SplitInto(1, 2))}})
	store := model.NewStore()
	f := s.Function(func(rc *strategy.ReplicaContext, in []*graph.Node) []*graph.Node {
		return []*graph.Node{graph.ReduceAllSum(layers.Dense(rc.Scope("wide"), in[0], false, 1<<20))}
	}, strategy.FunctionOptions{Store: store, SplitBatch: true})
	compiled, err := f.Compiled(ctx, shapes.Make(dtypes.Float32, 4, 1<<18)) // a terabyte of weights
	require.NoError(t, err)
	assert.Equal(t, []int{1 << 18, 1 << 19}, compiled.Module.Arguments[1].Shard)
	assert.Empty(t, hasValues(store))
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
			part, err := v.LocalPart(ctx, 1, 1)
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
