package stepfile_test

import (
	"bytes"
	"context"
	"fmt"
	"testing"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/ml/layers"
	"github.com/gomlx/gomlx/ml/train/optimizer"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/internal/test/plugintest"
	"github.com/tpustrategy/tpustrategy/internal/test/strategytest"
	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/report"
	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/strategy/stepfile"
	"github.com/tpustrategy/tpustrategy/strategy/train"
)

// stackedBatches returns the stacked batches on the devices, by argument.
func stackedBatches(t *testing.T, s *strategy.TPUStrategy, step, n int) []any {
	t.Helper()
	args := make([]any, 2)
	for i := range args {
		var column []any
		for _, batch := range strategytest.Batches(step, n) {
			column = append(column, batch[i])
		}
		v, err := s.StackBatches(context.Background(), column, logical.Annotation{})
		require.NoError(t, err)
		args[i] = v
	}
	return args
}

func TestASavedLoopTrainsOnBitForBit(t *testing.T) {
	ctx := context.Background()
	const n = 3
	for _, mesh := range [][2]int{{1, 1}, {4, 1}, {2, 2}} {
		t.Run(fmt.Sprintf("%dx%d", mesh[0], mesh[1]), func(t *testing.T) {
			opts := strategy.Options{Replicas: mesh[0], LogicalDevices: mesh[1], Variables: strategytest.AnnotatedRules(mesh[1])}
			strat := strategytest.On(t, plugintest.System(t, 4), opts)
			store, metric := strategytest.SeededStore(), metricOf(t, strat)
			loss := measured(strat, metric)
			dropping := func(rc *strategy.ReplicaContext, in []*graph.Node) *graph.Node {
				return loss(rc, []*graph.Node{layers.DropoutStatic(rc.Scope("drop"), in[0], 0.25), in[1]})
			}
			step := strategytest.OK(train.New(strat, store, optimizer.Adam().LearningRate(0.01).Done(), dropping,
				train.Options{}))
			compiled, err := step.Compiled(ctx, stackedBatches(t, strat, 0, n)...)
			require.NoError(t, err)
			file := mustSave(t, compiled)
			want := append(strategytest.LoopLosses(t, step, n, 3), strategytest.Values(t, metric, mesh[0])...)

			there := strategytest.On(t, plugintest.System(t, 4), opts)
			metric = metricOf(t, there)
			loaded, err := stepfile.LoadTrain(ctx, there, bytes.NewReader(file), store)
			require.NoError(t, err)
			require.Equal(t, want, append(strategytest.LoopLosses(t, loaded, n, 3), strategytest.Values(t, metric, mesh[0])...))
			compiled, err = loaded.Compiled(ctx, stackedBatches(t, there, 0, n)...)
			require.NoError(t, err)
			require.Equal(t, file, mustSave(t, compiled))
		})
	}
}

func TestALoopIsRefusedForOtherSteps(t *testing.T) {
	ctx := context.Background()
	strat := strategytest.New(t, 2, 2)
	f := strat.Function(func(rc *strategy.ReplicaContext, in []*graph.Node) []*graph.Node {
		return []*graph.Node{rc.AllReduce(strategy.Sum, graph.Add(in[0], in[1]))}
	}, strategy.FunctionOptions{Name: "add"})
	stack := func(n int, batch any) any {
		batches := make([]any, n)
		for i := range batches {
			batches[i] = batch
		}
		v, err := strat.StackBatches(ctx, batches, logical.Annotation{})
		require.NoError(t, err)
		return v
	}
	x := []float32{1, 2, 3, 4} // two rows a replica
	one := []float32{1, 1}
	compiled, err := f.Compiled(ctx, stack(4, x), one)
	require.NoError(t, err)
	file := mustSave(t, compiled)
	loop, err := stepfile.Load(ctx, strat, bytes.NewReader(file), nil)
	require.NoError(t, err)
	out, err := loop.Run(ctx, stack(4, x), one)
	require.NoError(t, err)
	require.Equal(t, []any{[]float32{6, 8}, []float32{6, 8}}, strategytest.Values(t, out[0], 2))
	compiled, err = f.Compiled(ctx, one, one)
	require.NoError(t, err)
	single, err := stepfile.Load(ctx, strat, bytes.NewReader(mustSave(t, compiled)), nil)
	require.NoError(t, err)

	for name, c := range map[string]struct {
		f    *strategy.Function
		args []any
		want string
	}{
		"fewer steps": {loop, []any{stack(3, x), one}, "it is a loop of 4 steps, not of 3; stack as many batches"},
		"no loop": {loop, []any{one, one},
			"it is a loop of 4 steps; stack as many batches, with RunSteps or StackBatches"},
		"a loop of one": {single, []any{stack(1, x), one}, "it is one step, not a loop of 1"},
		"larger batches": {loop, []any{stack(4, append(x, x...)), one}, "argument 0 is PerReplica(Float32[4], none) " +
			"in each of 4 steps, and the step takes PerReplica(Float32[2], none) in each of 4 steps"},
		"another dtype": {loop, []any{stack(4, []int32{1, 2, 3, 4}), one}, "argument 0 is PerReplica(Int32[2]"},
		"all stacked": {loop, []any{stack(4, x), stack(4, x)},
			"argument 1 is PerReplica(Float32[2], none) in each of 4 steps, and the step takes Mirrored(Float32[2], none)"},
		"uneven":             {loop, []any{stack(4, x), stack(3, x)}, "argument 1 is for 3 steps, another for 4"},
		"too few arguments":  {loop, []any{stack(4, x)}, "it takes 2 arguments, not 1"},
		"too many arguments": {single, []any{one, one, one}, "it takes 2 arguments, not 3"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := c.f.Run(ctx, c.args...)
			var refused *stepfile.Error
			require.ErrorAs(t, err, &refused)
			assert.Equal(t, stepfile.Arguments, refused.Reason)
			require.ErrorContains(t, err, c.want)
		})
	}
	for _, edit := range [][2]string{
		{`"steps":4`, `"steps":3`}, {`"steps":4`, `"steps":0`}, {`"steps":4`, `"steps":-4`},
		{`"per_step":true`, `"per_step":false`}, {`"global":[4,4]`, `"global":[5,4]`},
	} {
		_, err := stepfile.Load(ctx, strat, bytes.NewReader(stepfile.Rewrite(t, file, edit[0], edit[1])), nil)
		var refused *stepfile.Error
		require.ErrorAs(t, err, &refused, edit[1])
		assert.Equal(t, stepfile.Damaged, refused.Reason, edit[1])
	}
}

func TestALoadedTrainingStepSaysHowManyStepsItTakes(t *testing.T) {
	ctx := context.Background()
	strat := strategytest.On(t, plugintest.System(t, 4), strategytest.AnnotatedOptions())
	store := strategytest.SeededStore()
	step := strategytest.OK(train.New(strat, store, optimizer.Adam().LearningRate(0.01).Done(), strategytest.Annotated(2),
		train.Options{}))
	compiled, err := step.Compiled(ctx, stackedBatches(t, strat, 0, 2)...)
	require.NoError(t, err)
	loaded, err := stepfile.LoadTrain(ctx, strat, bytes.NewReader(mustSave(t, compiled)), store)
	require.NoError(t, err)
	var refused *stepfile.Error
	_, err = loaded.RunSteps(ctx, strategytest.Batches(0, 5)...)
	require.ErrorAs(t, err, &refused)
	require.ErrorContains(t, err, "it is a loop of 2 steps, not of 5")
	x, y := strategytest.Batch(0)
	_, err = loaded.Run(ctx, x, y)
	require.ErrorAs(t, err, &refused)
	require.ErrorContains(t, err, "it is a loop of 2 steps; stack as many batches")
	_, err = loaded.RunSteps(ctx, strategytest.Batches(0, 2)...)
	require.NoError(t, err)
}

func TestAOTLoopsAreSavedForATPU(t *testing.T) {
	if !plugintest.TPUChild(t) {
		return
	}
	ctx := context.Background()
	strat := strategytest.Ahead(t, "v5e:2x2", strategytest.AnnotatedOptions())
	step := strategytest.OK(train.New(strat, strategytest.SeededStore(), optimizer.Adam().LearningRate(0.01).Done(),
		measured(strat, metricOf(t, strat)), train.Options{}))
	x, y := strategytest.BatchShapes(32)
	stack := func(batches ...any) any {
		v, err := strat.StackBatches(ctx, batches, logical.Annotation{})
		require.NoError(t, err)
		return v
	}
	compiled, err := step.Compiled(ctx, stack(x, x, x), stack(y, y, y))
	require.NoError(t, err)
	file := mustSave(t, compiled)
	require.NoError(t, stepfile.Decode(file))
	assert.Contains(t, string(file), `"steps":3`)
	assert.Contains(t, string(file), `"per_step":true`)
	looped, err := report.Of(compiled)
	require.NoError(t, err)
	one, err := step.Compiled(ctx, x, y)
	require.NoError(t, err)
	single, err := report.Of(one)
	require.NoError(t, err)
	// A loop of three steps has the cost of three steps.
	assert.Equal(t, 3*single.Cost.ModelFLOPs, looped.Cost.ModelFLOPs)
	assert.InEpsilon(t, 3*single.Cost.FLOPs, looped.Cost.FLOPs, 0.2)
	assert.Positive(t, looped.Cost.RooflineSeconds)
	assert.LessOrEqual(t, looped.Cost.RooflineSeconds, 3*single.Cost.RooflineSeconds,
		"a loop may keep its state near the core")
	bytes, moved := single.CollectiveBytes("replica")
	inLoop, movedInLoop := looped.CollectiveBytes("replica")
	assert.Equal(t, []int64{3 * bytes, 3 * moved}, []int64{inLoop, movedInLoop})
	for _, c := range looped.Collectives {
		assert.False(t, c.InLoop, "%+v", c)
	}

	_, err = strat.StackBatches(ctx, []any{x, y}, logical.Annotation{})
	require.ErrorContains(t, err, "a loop has one shape for all")
	_, err = strat.StackBatches(ctx, []any{shapes.Make(dtypes.Float32, 33, 8)}, logical.Annotation{})
	require.ErrorContains(t, err, "33 rows")
	_, err = step.RunSteps(ctx, strategytest.Batches(0, 3)...)
	require.ErrorIs(t, err, strategy.ErrAheadOfTime)
}
