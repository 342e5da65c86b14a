package stepfile_test

import (
	"bytes"
	"context"
	"fmt"
	"testing"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/ml/train/optimizer"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/internal/test/plugintest"
	"github.com/tpustrategy/tpustrategy/internal/test/strategytest"
	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/strategy/stepfile"
	"github.com/tpustrategy/tpustrategy/strategy/train"
	"github.com/tpustrategy/tpustrategy/tpu/system"
)

// aotVariable is a distributed variable of the saved steps.
type aotVariable struct {
	name    string
	initial any
	opts    strategy.VariableOptions
}

// aotVariables returns variables of every kind, sharded over p logical devices where possible.
func aotVariables(p int) []aotVariable {
	split := logical.SplitInto(p)
	return []aotVariable{
		{"sum", []float32{1, 2, 3, 4}, strategy.VariableOptions{Aggregation: strategy.AggregateSum, Annotation: split}},
		{"mean", float32(0.1), strategy.VariableOptions{Aggregation: strategy.AggregateMean}},
		{"first", int32(3), strategy.VariableOptions{Aggregation: strategy.AggregateFirst}},
		{"read only", []float32{0.5, 0.25, 0.125, 3}, strategy.VariableOptions{}},
		{"local", float32(7), strategy.VariableOptions{LocalWrites: true}},
		{"metric", []float32{0, 0, 0, 0}, strategy.VariableOptions{Synchronization: strategy.OnRead,
			Aggregation: strategy.AggregateSum, Annotation: split}},
		{"average", float32(0), strategy.VariableOptions{Synchronization: strategy.OnRead,
			Aggregation: strategy.AggregateMean}},
	}
}

// makeVariables creates the variables of aotVariables, with a prefix in their names.
func makeVariables(t *testing.T, s *strategy.TPUStrategy, prefix string) map[string]*strategy.Variable {
	t.Helper()
	made := map[string]*strategy.Variable{}
	for _, v := range aotVariables(s.NumLogicalDevices()) {
		v.opts.Name = prefix + v.name
		var err error
		made[v.name], err = s.NewVariable(context.Background(), v.initial, v.opts)
		require.NoError(t, err)
	}
	return made
}

// variableStep reads and writes all variables.
func variableStep(v map[string]*strategy.Variable) strategy.StepFunc {
	return func(rc *strategy.ReplicaContext, in []*graph.Node) []*graph.Node {
		id := graph.ConvertDType(rc.ReplicaIDInSyncGroup(), dtypes.Float32)
		x := graph.Sin(graph.Add(graph.Mul(in[0], rc.Read(v["read only"])), graph.BroadcastToDims(id, 4)))
		rc.AssignAdd(v["sum"], x)
		rc.Assign(v["mean"], graph.Add(rc.Read(v["mean"]), graph.ReduceAllMean(x)))
		rc.AssignAdd(v["first"], graph.AddScalar(rc.ReplicaIDInSyncGroup(), 1))
		rc.AssignAdd(v["local"], id)
		rc.AssignAdd(v["metric"], graph.Square(x))
		rc.AssignAdd(v["average"], graph.ReduceAllSum(x))
		return []*graph.Node{graph.Add(x, graph.Mul(rc.Read(v["sum"]), rc.ReadReduced(v["average"])))}
	}
}

// everything runs the step and returns its results and the variables' components.
func everything(t *testing.T, f *strategy.Function, v map[string]*strategy.Variable, steps int) (all []any) {
	t.Helper()
	ctx := context.Background()
	for i := range steps {
		out, err := f.Run(ctx, []float32{float32(i), 0.3, -1.7, 1e-3})
		require.NoError(t, err)
		n := out[0].Strategy().NumReplicasInSync()
		all = append(all, strategytest.Values(t, out[0], n)...)
		for _, d := range aotVariables(1) {
			all = append(all, strategytest.Values(t, v[d.name], n)...)
		}
	}
	return all
}

func TestASavedStepRunsOnDistributedVariablesBitForBit(t *testing.T) {
	ctx := context.Background()
	for _, mesh := range [][2]int{{1, 1}, {4, 1}, {2, 2}} {
		t.Run(fmt.Sprintf("%dx%d", mesh[0], mesh[1]), func(t *testing.T) {
			opts := strategy.Options{Replicas: mesh[0], LogicalDevices: mesh[1]}
			strat := strategytest.On(t, plugintest.System(t, 4), opts)
			variables := makeVariables(t, strat, "")
			f := strat.Function(variableStep(variables), strategy.FunctionOptions{Name: "counts"})
			compiled, err := f.Compiled(ctx, []float32{0, 0, 0, 0})
			require.NoError(t, err)
			file := mustSave(t, compiled)
			want := everything(t, f, variables, 3)

			there := strategytest.On(t, plugintest.System(t, 4), opts)
			_, err = there.NewVariable(ctx, float32(1), strategy.VariableOptions{Name: "bystander"})
			require.NoError(t, err)
			variables = makeVariables(t, there, "")
			loaded, err := stepfile.Load(ctx, there, bytes.NewReader(file), nil)
			require.NoError(t, err)
			require.Equal(t, want, everything(t, loaded, variables, 3))

			// The loaded step can be saved, and runs with variables of other names.
			compiled, err = loaded.Compiled(ctx, []float32{0, 0, 0, 0})
			require.NoError(t, err)
			require.Equal(t, file, mustSave(t, compiled))
			others := makeVariables(t, there, "other ")
			again, err := stepfile.Load(ctx, there, bytes.NewReader(mustSave(t, compiled)), nil,
				stepfile.Options{Variables: others})
			require.NoError(t, err)
			require.Equal(t, want, everything(t, again, others, 3))
		})
	}
}

// measured is a training step that counts its batches in a metric.
func measured(strat *strategy.TPUStrategy, metric *strategy.Variable) train.Loss {
	loss := strategytest.Annotated(strat.NumLogicalDevices())
	return func(rc *strategy.ReplicaContext, in []*graph.Node) *graph.Node {
		l := loss(rc, in)
		rc.AssignAdd(metric, l)
		return l
	}
}

func metricOf(t *testing.T, s *strategy.TPUStrategy) *strategy.Variable {
	t.Helper()
	v, err := s.NewVariable(context.Background(), float32(0), strategy.VariableOptions{
		Name: "metric", Synchronization: strategy.OnRead, Aggregation: strategy.AggregateMean})
	require.NoError(t, err)
	return v
}

func TestASavedTrainingStepKeepsItsMetric(t *testing.T) {
	ctx := context.Background()
	run := func(step *train.Step, metric *strategy.Variable) (all []any) {
		for _, l := range strategytest.Losses(t, step, 0, 4) {
			all = append(all, l)
		}
		return append(all, strategytest.Values(t, metric, 2)...)
	}
	strat := strategytest.On(t, plugintest.System(t, 4), strategytest.AnnotatedOptions())
	store, metric := strategytest.SeededStore(), metricOf(t, strat)
	step := strategytest.OK(train.New(strat, store, optimizer.Adam().LearningRate(0.01).Done(), measured(strat, metric),
		train.Options{}))
	x, y := strategytest.Batch(0)
	compiled, err := step.Compiled(ctx, x, y)
	require.NoError(t, err)
	file := mustSave(t, compiled)

	there := strategytest.On(t, plugintest.System(t, 4), strategytest.AnnotatedOptions())
	metric2 := metricOf(t, there)
	loaded, err := stepfile.LoadTrain(ctx, there, bytes.NewReader(file), store) // its values are still the first ones
	require.NoError(t, err)
	got := run(loaded, metric2)
	assert.Equal(t, run(step, metric), got)
	assert.NotEqual(t, float32(0), got[4])

	// A variable of the store cannot replace a distributed variable.
	own, ok := there.Variables(store).Lookup("/hidden/dense/biases")
	require.True(t, ok)
	_, err = stepfile.LoadTrain(ctx, there, bytes.NewReader(file), store,
		stepfile.Options{Variables: map[string]*strategy.Variable{"metric": own}})
	var refused *stepfile.Error
	require.ErrorAs(t, err, &refused)
	assert.Equal(t, "metric", refused.Variable)
}

// metricFile returns a saved step on 2 replicas with the variables "metric" (sync-on-read with sum
// aggregation) and "scale" (mirrored).
func metricFile(t *testing.T, sys *system.System) []byte {
	t.Helper()
	ctx := context.Background()
	strat, err := strategy.New(sys, strategy.Options{Replicas: 2, LogicalDevices: 2})
	require.NoError(t, err)
	defer strat.Close()
	v := addMetric(t, strat, "metric", strategy.VariableOptions{})
	scale, err := strat.NewVariable(ctx, float32(2), strategy.VariableOptions{Name: "scale"})
	require.NoError(t, err)
	compiled, err := strat.Function(func(rc *strategy.ReplicaContext, _ []*graph.Node) []*graph.Node {
		return []*graph.Node{rc.AssignAdd(v, graph.BroadcastToDims(rc.Read(scale), 4))}
	}, strategy.FunctionOptions{Name: "metrics"}).Compiled(ctx)
	require.NoError(t, err)
	return mustSave(t, compiled)
}

// addMetric creates the variable "metric" with the properties that the step requires, modified by
// opts.
func addMetric(t *testing.T, s *strategy.TPUStrategy, name string, opts strategy.VariableOptions) *strategy.Variable {
	t.Helper()
	opts.Name = name
	if opts.Synchronization == strategy.SyncAuto {
		opts.Synchronization = strategy.OnRead
	}
	if opts.Aggregation == strategy.AggregateNone {
		opts.Aggregation = strategy.AggregateSum
	}
	if opts.Annotation.Kind() == logical.KindNone {
		opts.Annotation = logical.SplitInto(2)
	}
	v, err := s.NewVariable(context.Background(), []float32{0, 0, 0, 0}, opts)
	require.NoError(t, err)
	return v
}

func TestDistributedVariablesThatDoNotFitAreNamed(t *testing.T) {
	ctx := context.Background()
	sys := plugintest.System(t, 4)
	file := metricFile(t, sys)
	type variables = map[string]*strategy.Variable
	other := strategytest.On(t, sys, strategy.Options{Replicas: 2, LogicalDevices: 2})
	foreign := addMetric(t, other, "metric", strategy.VariableOptions{})
	for name, c := range map[string]struct {
		make     func(t *testing.T, s *strategy.TPUStrategy) variables
		variable string
		want     string
	}{
		"missing": {func(*testing.T, *strategy.TPUStrategy) variables { return nil },
			"metric", "there is none of this name in the strategy; the step has Float32[4], ON_READ, SUM, laid out as 2; " +
				"make it with NewVariable"},
		"ambiguous": {func(t *testing.T, s *strategy.TPUStrategy) variables {
			addMetric(t, s, "metric", strategy.VariableOptions{})
			addMetric(t, s, "metric", strategy.VariableOptions{})
			return nil
		}, "metric", "2 variables of the strategy have this name; the step has Float32[4]"},
		"another shape": {func(t *testing.T, s *strategy.TPUStrategy) variables {
			_, err := s.NewVariable(ctx, []float32{1, 2}, strategy.VariableOptions{Name: "metric",
				Synchronization: strategy.OnRead,
				Aggregation:     strategy.AggregateSum, Annotation: logical.SplitInto(2)})
			require.NoError(t, err)
			return nil
		}, "metric", "it is Float32[2], ON_READ, SUM, laid out as 2 here, and Float32[4], "},
		"another dtype": {func(t *testing.T, s *strategy.TPUStrategy) variables {
			_, err := s.NewVariable(ctx, []int32{1, 2, 3, 4}, strategy.VariableOptions{Name: "metric",
				Synchronization: strategy.OnRead,
				Aggregation:     strategy.AggregateSum, Annotation: logical.SplitInto(2)})
			require.NoError(t, err)
			return nil
		}, "metric", "it is Int32[4]"},
		"another synchronization": {func(t *testing.T, s *strategy.TPUStrategy) variables {
			addMetric(t, s, "metric", strategy.VariableOptions{Synchronization: strategy.OnWrite})
			return nil
		}, "metric", "it is Float32[4], ON_WRITE, SUM"},
		"another aggregation": {func(t *testing.T, s *strategy.TPUStrategy) variables {
			addMetric(t, s, "metric", strategy.VariableOptions{Aggregation: strategy.AggregateMean})
			return nil
		}, "metric", "it is Float32[4], ON_READ, MEAN"},
		"another annotation": {func(t *testing.T, s *strategy.TPUStrategy) variables {
			addMetric(t, s, "metric", strategy.VariableOptions{Annotation: logical.Replicated()})
			return nil
		}, "metric", "laid out as replicate here"},
		"local writes": {func(t *testing.T, s *strategy.TPUStrategy) variables {
			v, err := s.NewVariable(ctx, float32(1), strategy.VariableOptions{Name: "scale 2", LocalWrites: true})
			require.NoError(t, err)
			addMetric(t, s, "metric", strategy.VariableOptions{})
			return variables{"scale": v}
		}, "scale", "with local writes here"},
		"no variable": {func(*testing.T, *strategy.TPUStrategy) variables { return variables{"metric": nil} },
			"metric", "Options.Variables has nil for this name"},
		"another strategy's": {func(*testing.T, *strategy.TPUStrategy) variables { return variables{"metric": foreign} },
			"metric", "belongs to another strategy"},
		"closed": {func(t *testing.T, s *strategy.TPUStrategy) variables {
			v := addMetric(t, s, "metric", strategy.VariableOptions{})
			require.NoError(t, v.Close())
			return variables{"metric": v}
		}, "metric", "closed"},
		"unknown to the step": {func(t *testing.T, s *strategy.TPUStrategy) variables {
			return variables{"matric": addMetric(t, s, "metric", strategy.VariableOptions{})}
		}, "matric", "the step has no distributed variable of this name"},
	} {
		t.Run(name, func(t *testing.T) {
			strat := strategytest.On(t, sys, strategy.Options{Replicas: 2, LogicalDevices: 2})
			_, err := strat.NewVariable(ctx, float32(2), strategy.VariableOptions{Name: "scale"})
			require.NoError(t, err)
			_, err = stepfile.Load(ctx, strat, bytes.NewReader(file), nil, stepfile.Options{Variables: c.make(t, strat)})
			var refused *stepfile.Error
			require.ErrorAs(t, err, &refused)
			assert.Equal(t, stepfile.Variable, refused.Reason)
			assert.Equal(t, c.variable, refused.Variable)
			require.ErrorContains(t, err, c.want)
		})
	}
}

func TestEveryVariableThatDoesNotFitIsInTheError(t *testing.T) {
	sys := plugintest.System(t, 4)
	file := metricFile(t, sys)
	strat := strategytest.On(t, sys, strategy.Options{Replicas: 2, LogicalDevices: 2})
	_, err := stepfile.Load(t.Context(), strat, bytes.NewReader(file), nil)
	require.ErrorContains(t, err, `variable "metric"`)
	require.ErrorContains(t, err, `variable "scale"`)

	twice := addMetric(t, strat, "metric", strategy.VariableOptions{})
	scale, err := strat.NewVariable(t.Context(), float32(2), strategy.VariableOptions{Name: "scale"})
	require.NoError(t, err)
	loaded, err := stepfile.Load(t.Context(), strat, bytes.NewReader(file), nil)
	require.NoError(t, err)
	_, err = loaded.Run(t.Context())
	require.NoError(t, err)
	require.Equal(t, []any{[]float32{2, 2, 2, 2}, []float32{2, 2, 2, 2}}, strategytest.Values(t, twice, 2))
	require.NoError(t, scale.Close())
	_, err = loaded.Run(t.Context())
	require.ErrorIs(t, err, strategy.ErrClosed)
}

func TestHeadersOfVariablesThatContradictThemselvesAreDamaged(t *testing.T) {
	sys := plugintest.System(t, 4)
	file := metricFile(t, sys)
	strat := strategytest.On(t, sys, strategy.Options{Replicas: 2, LogicalDevices: 2})
	for _, edit := range [][2]string{
		{`"synchronization":"ON_READ"`, `"synchronization":"AUTO"`},
		{`"synchronization":"ON_READ"`, `"synchronization":"ON_WRITE"`},
		{`"aggregation":"SUM"`, `"aggregation":"PRODUCT"`},
		{`"variable":true`, `"variable":false`},
		{`"per_replica":true`, `"per_replica":false`},
		{`"donated":true`, `"donated":false`},
		{`"updates":[`, `"updates":[0,`},
	} {
		_, err := stepfile.Load(t.Context(), strat, bytes.NewReader(stepfile.Rewrite(t, file, edit[0], edit[1])), nil)
		var refused *stepfile.Error
		require.ErrorAs(t, err, &refused, edit[1])
		assert.Equal(t, stepfile.Damaged, refused.Reason, edit[1])
	}
}

func TestAOTStepsWithDistributedVariablesAreSavedForATPU(t *testing.T) {
	if !plugintest.TPUChild(t) {
		return
	}
	ctx := context.Background()
	strat := strategytest.Ahead(t, "v5e:2x2", strategy.Options{Replicas: 2, LogicalDevices: 2})
	f := strat.Function(variableStep(makeVariables(t, strat, "")), strategy.FunctionOptions{Name: "counts"})
	compiled, err := f.Compiled(ctx, []float32{0, 0, 0, 0})
	require.NoError(t, err)
	file := mustSave(t, compiled)
	require.NoError(t, stepfile.Decode(file))
	for _, v := range aotVariables(2) {
		assert.Contains(t, string(file), fmt.Sprintf(`"name":%q,"variable":true,"distributed":{`, v.name))
	}
}

func TestASavedStepTakesRaggedValues(t *testing.T) {
	ctx := t.Context()
	strat := strategytest.New(t, 2, 1)
	ragged, err := strat.PerReplica(ctx, []any{[]float32{1, 2, 3}, []float32{4}}, logical.Annotation{})
	require.NoError(t, err)
	f := strat.Function(func(rc *strategy.ReplicaContext, in []*graph.Node) []*graph.Node {
		return []*graph.Node{graph.Mul(graph.ReduceAllSum(in[0]), graph.ConvertDType(rc.ValidSize(0, 0), dtypes.Float32))}
	}, strategy.FunctionOptions{Padding: strategy.MaskPadding})
	compiled, err := f.Compiled(ctx, ragged)
	require.NoError(t, err)
	loaded, err := stepfile.Load(ctx, strat, bytes.NewReader(mustSave(t, compiled)), nil)
	require.NoError(t, err)
	out, err := loaded.Run(ctx, ragged)
	require.NoError(t, err)
	assert.Equal(t, []any{float32(18), float32(4)}, strategytest.Values(t, out[0], 2))
}
