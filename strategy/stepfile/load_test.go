package stepfile_test

import (
	"bytes"
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

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/internal/test/plugintest"
	"github.com/tpustrategy/tpustrategy/internal/test/strategytest"
	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/pjrt/cache"
	"github.com/tpustrategy/tpustrategy/report"
	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/strategy/stepfile"
	"github.com/tpustrategy/tpustrategy/strategy/train"
	"github.com/tpustrategy/tpustrategy/tpu/system"
)

// savedStep trains three steps, and returns the step as a file and the store with the trained
// variables.
func savedStep(t *testing.T, sys *system.System) (file []byte, store *model.Store, want []float64) {
	t.Helper()
	strat, err := strategy.New(sys, strategytest.AnnotatedOptions())
	require.NoError(t, err)
	defer strat.Close()
	store = strategytest.SeededStore()
	step := strategytest.OK(train.New(strat, store, optimizer.Adam().LearningRate(0.01).Done(), strategytest.Annotated(2),
		train.Options{}))
	strategytest.Losses(t, step, 0, 3)
	require.NoError(t, strat.Variables(store).Pull(t.Context()))
	x, y := strategytest.Batch(0)
	compiled, err := step.Compiled(t.Context(), x, y)
	require.NoError(t, err)
	var b bytes.Buffer
	require.NoError(t, stepfile.Save(t.Context(), &b, compiled))
	return b.Bytes(), store, strategytest.Losses(t, step, 3, 8)
}

func TestASavedStepTrainsOnBitForBit(t *testing.T) {
	sys := plugintest.System(t, 4)
	file, store, want := savedStep(t, sys)
	strat := strategytest.On(t, plugintest.System(t, 4), strategytest.AnnotatedOptions())
	step, err := stepfile.LoadTrain(t.Context(), strat, bytes.NewReader(file), store)
	require.NoError(t, err)
	assert.Equal(t, want, strategytest.Losses(t, step, 3, 8))

	x, y := strategytest.Batch(0)
	compiled, err := step.Compiled(t.Context(), x, y)
	require.NoError(t, err)
	r, err := report.Of(compiled)
	require.NoError(t, err)
	assert.Positive(t, r.Cost.ModelFLOPs)
	assert.Equal(t, file, mustSave(t, compiled), "a loaded step is saved as it was")

	other := tensors.FromShape(shapes.Make(dtypes.Float32, 64, 8))
	_, err = step.Run(t.Context(), other, tensors.FromShape(shapes.Make(dtypes.Float32, 64, 1)))
	var trace *strategy.TraceError
	require.ErrorAs(t, err, &trace)
	var refused *stepfile.Error
	require.ErrorAs(t, err, &refused)
	assert.Equal(t, stepfile.Arguments, refused.Reason)
	assert.ErrorContains(t, err,
		"argument 0 is PerReplica(Float32[32 8], none), and the step takes PerReplica(Float32[16 8], none)")
}

func TestASavedFunctionRuns(t *testing.T) {
	ctx := t.Context()
	sys := plugintest.System(t, 4)
	strat := strategytest.On(t, sys, strategy.Options{LogicalDevices: 2})
	f := strat.Function(func(rc *strategy.ReplicaContext, in []*graph.Node) []*graph.Node {
		return []*graph.Node{rc.AllReduce(strategy.Sum, graph.Add(logical.Split(in[0], 2),
			graph.ConvertDType(rc.ReplicaIDInSyncGroup(), dtypes.Float32)))}
	}, strategy.FunctionOptions{Name: "sum", Arguments: []logical.Annotation{logical.SplitInto(2)}})
	compiled, err := f.Compiled(ctx, []float32{1, 2})
	require.NoError(t, err)
	var b bytes.Buffer
	require.NoError(t, stepfile.Save(t.Context(), &b, compiled))
	loaded, err := stepfile.Load(ctx, strat, &b, nil)
	require.NoError(t, err)
	results, err := loaded.Run(ctx, []float32{10, 20})
	require.NoError(t, err)
	value, err := results[0].Local(ctx, 1)
	require.NoError(t, err)
	assert.Equal(t, []float32{21, 41}, tensors.MustCopyFlatData[float32](value))
	_, err = stepfile.LoadTrain(ctx, strat, bytes.NewReader(mustSave(t, compiled)), nil)
	require.ErrorContains(t, err, "no training step")
}

func TestAStepThatDoesNotFitIsRefused(t *testing.T) {
	sys := plugintest.System(t, 4)
	file, store, _ := savedStep(t, sys)
	edit := func(old, new string) []byte { return stepfile.Rewrite(t, file, old, new) }
	for name, c := range map[string]struct {
		file    []byte
		devices int
		opts    strategy.Options
		store   *model.Store
		want    stepfile.Reason
	}{
		"empty":              {file: nil, want: stepfile.NotAFile},
		"text":               {file: []byte("module {}"), want: stepfile.NotAFile},
		"cut":                {file: file[:len(file)/2], want: stepfile.Damaged},
		"only its beginning": {file: file[:20], want: stepfile.Damaged},
		"a flipped bit":      {file: flipped(file, len(file)/3), want: stepfile.Damaged},
		"longer":             {file: append(bytes.Clone(file), 0), want: stepfile.Damaged},
		"another version":    {file: edit(`"version":2`, `"version":1`), want: stepfile.Version},
		"another plugin":     {file: edit(`"plugin":"cpu; PJRT 0.`, `"plugin":"cpu; PJRT 9.`), want: stepfile.Plugin},
		"other devices":      {file: edit(`"devices":"cpu"`, `"devices":"TPU v4"`), want: stepfile.Devices},
		"a bad dtype":        {file: edit(`"dtype":"Float32"`, `"dtype":"Float31"`), want: stepfile.Damaged},
		"a bad layout":       {file: edit(`"kind":"split"`, `"kind":"smash"`), want: stepfile.Damaged},
		"a bad update":       {file: edit(`"updates":[`, `"updates":[-7,`), want: stepfile.Damaged},
		"another topology":   {devices: 8, want: stepfile.Topology},
		"another assignment": {opts: strategy.Options{Replicas: 1, LogicalDevices: 4}, want: stepfile.Assignment},
		"no store":           {store: nil, want: stepfile.Variable},
		"an empty store":     {store: strategytest.SeededStore(), want: stepfile.Variable},
		"other rules":        {opts: strategy.Options{Replicas: 2, LogicalDevices: 2}, store: store, want: stepfile.Variable},
	} {
		t.Run(name, func(t *testing.T) {
			if c.devices == 0 {
				c.devices = 4
			}
			if c.opts.Replicas == 0 {
				c.opts = strategytest.AnnotatedOptions()
			}
			if c.want == stepfile.Topology || c.want == stepfile.Assignment || c.want == stepfile.Variable {
				c.file = file
			}
			strat := strategytest.On(t, plugintest.System(t, c.devices), c.opts)
			_, err := stepfile.LoadTrain(t.Context(), strat, bytes.NewReader(c.file), c.store)
			var refused *stepfile.Error
			require.ErrorAs(t, err, &refused)
			assert.Equal(t, c.want, refused.Reason, err)
			assert.ErrorContains(t, err, refused.Reason.String())
		})
	}
}

func flipped(b []byte, at int) []byte {
	b = bytes.Clone(b)
	b[at] ^= 1
	return b
}

func TestAOTStepsAreSavedForATPUAndRefusedHere(t *testing.T) {
	if !plugintest.TPUChild(t) {
		return
	}
	strat := strategytest.Ahead(t, "v5e:2x2", strategytest.AnnotatedOptions())
	x, y := strategytest.BatchShapes(32)
	compiled, err := strategytest.AnnotatedStep(strat).Compiled(context.Background(), x, y)
	require.NoError(t, err)
	file := mustSave(t, compiled)
	_, err = stepfile.Load(t.Context(), strat, bytes.NewReader(file), nil)
	require.ErrorIs(t, err, strategy.ErrAheadOfTime)
	cpu := strategytest.On(t, plugintest.System(t, 4), strategytest.AnnotatedOptions())
	_, err = stepfile.Load(t.Context(), cpu, bytes.NewReader(file), nil)
	var refused *stepfile.Error
	require.ErrorAs(t, err, &refused)
	assert.Equal(t, stepfile.Plugin, refused.Reason)
	assert.ErrorContains(t, err, "tpu; PJRT 0.")
}

func TestStepsAreCachedAcrossStrategies(t *testing.T) {
	sys := plugintest.System(t, 4)
	programs, err := cache.Open(t.TempDir(), cache.Options{SigningKey: make([]byte, 32)})
	require.NoError(t, err)
	var first []float64
	for range 2 {
		opts := strategytest.AnnotatedOptions()
		opts.Compiler = programs
		strat, err := strategy.New(sys, opts)
		require.NoError(t, err)
		got := strategytest.Losses(t, strategytest.OK(train.New(strat, strategytest.SeededStore(),
			optimizer.Adam().LearningRate(0.01).Done(), strategytest.Annotated(2), train.Options{})), 0, 3)
		require.NoError(t, strat.Close())
		if first == nil {
			first = got
		}
		assert.Equal(t, first, got)
	}
	assert.Equal(t, cache.Stats{Hits: 1, Misses: 1}, programs.Stats())
}

func TestALoadedStepIsHeldAgainstTheRules(t *testing.T) {
	ctx := context.Background()
	x := [][]float32{{1, 2}}
	saved := strategytest.New(t, 1, 2)
	store := model.NewStore()
	compiled, err := strategytest.OK(train.New(saved, store, optimizer.StochasticGradientDescent().Done(),
		func(rc *strategy.ReplicaContext, in []*graph.Node) *graph.Node {
			return graph.ReduceAllMean(layers.Dense(rc.Scope("hidden"), in[0], true, 4))
		}, train.Options{})).Compiled(ctx, x)
	require.NoError(t, err)
	file := mustSave(t, compiled)

	s := strategytest.New(t, 1, 2, strategy.Options{Variables: logical.Rules{logical.Match("/hiden/dense/weights",
		logical.SplitInto(1, 2))}})
	_, err = stepfile.LoadTrain(ctx, s, bytes.NewReader(file), store)
	var wrong *strategy.OptionError
	require.ErrorAs(t, err, &wrong)
	assert.ErrorContains(t, err, `rule 0 ("/hiden/dense/weights" to 1,2) matches no variable`)
}

// A training step has one loss for all replicas. As a function it must be bound instead of run.
func TestATrainingStepIsNoFunctionOfEachReplica(t *testing.T) {
	ctx := t.Context()
	file, store, want := savedStep(t, plugintest.System(t, 4))
	s := strategytest.On(t, plugintest.System(t, 4), strategytest.AnnotatedOptions())
	f, err := stepfile.Load(ctx, s, bytes.NewReader(file), store)
	require.NoError(t, err)
	x, y := strategytest.Batch(3)
	_, err = f.Run(ctx, x, y)
	require.ErrorContains(t, err, "load it with stepfile.LoadTrain, or Bind it")
	step, err := train.StepOf(f)
	require.NoError(t, err)
	assert.Equal(t, want[:1], strategytest.Losses(t, step, 3, 4))

	traced := s.Function(func(_ *strategy.ReplicaContext, in []*graph.Node) []*graph.Node { return in },
		strategy.FunctionOptions{})
	_, err = train.StepOf(traced)
	require.ErrorContains(t, err, "load one with stepfile.LoadTrain")
	assert.Equal(t, errkind.ValueError, errkind.KindOf(err))
}

func TestOptionsAreGivenOnce(t *testing.T) {
	_, err := stepfile.Load(t.Context(), strategytest.New(t, 1, 1), bytes.NewReader(nil), nil, stepfile.Options{},
		stepfile.Options{})
	require.EqualError(t, err, "stepfile: load: 2 options; give one")
	require.Equal(t, errkind.ValueError, errkind.KindOf(err))
}
