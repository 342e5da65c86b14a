package strategy_test

import (
	"bytes"
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/core/tensors"
	"github.com/gomlx/gomlx/ml/model"
	"github.com/gomlx/gomlx/ml/train/optimizer"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/pjrt/cache"
	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/tpu/system"
)

// batchOf is a batch with contents that depend on the step.
func batchOf(step int) (x, y *tensors.Tensor) {
	xs, ys := make([]float32, 32*8), make([]float32, 32)
	for i := range xs {
		xs[i] = float32((i*7+step*13)%17)/17 - 0.5
		ys[i/8] += xs[i]
	}
	return tensors.FromFlatDataAndDimensions(xs, 32, 8), tensors.FromFlatDataAndDimensions(ys, 32, 1)
}

func storeWithSeed() *model.Store {
	store := model.NewStore()
	store.SetParam(model.ParamInitialSeed, int64(42))
	return store
}

func annotatedOptions() strategy.Options {
	return strategy.Options{Replicas: 2, LogicalDevices: 2, Variables: annotatedRules(2)}
}

// losses takes steps and returns their losses.
func losses(t *testing.T, step *strategy.TrainStep, from, to int) []float64 {
	t.Helper()
	var all []float64
	for i := from; i < to; i++ {
		x, y := batchOf(i)
		loss, err := step.Run(t.Context(), x, y)
		require.NoError(t, err)
		value, err := loss.Float64(t.Context())
		require.NoError(t, err)
		all = append(all, value)
	}
	return all
}

// savedStep trains three steps, and returns the step as a file and the store with
// the variables that it left.
func savedStep(t *testing.T, sys *system.System) (file []byte, store *model.Store, want []float64) {
	t.Helper()
	strat, err := strategy.New(sys, annotatedOptions())
	require.NoError(t, err)
	defer strat.Close()
	store = storeWithSeed()
	step := strat.TrainStep(store, optimizer.Adam().LearningRate(0.01).Done(), annotated(2))
	losses(t, step, 0, 3)
	require.NoError(t, strat.Variables(store).Pull(t.Context()))
	x, y := batchOf(0)
	compiled, err := step.Compiled(t.Context(), x, y)
	require.NoError(t, err)
	var b bytes.Buffer
	require.NoError(t, compiled.Save(&b))
	return b.Bytes(), store, losses(t, step, 3, 8)
}

func TestASavedStepTrainsOnBitForBit(t *testing.T) {
	sys := openCPU(t, 4)
	file, store, want := savedStep(t, sys)
	strat, err := strategy.New(openCPU(t, 4), annotatedOptions())
	require.NoError(t, err)
	defer strat.Close()
	step, err := strat.LoadTrainStep(t.Context(), bytes.NewReader(file), store)
	require.NoError(t, err)
	assert.Equal(t, want, losses(t, step, 3, 8))

	x, y := batchOf(0)
	compiled, err := step.Compiled(t.Context(), x, y)
	require.NoError(t, err)
	r, err := compiled.Report()
	require.NoError(t, err)
	assert.Positive(t, r.Cost.ModelFLOPs)
	assert.Equal(t, file, mustSave(t, compiled), "a loaded step is saved as it was")

	other := tensors.FromShape(shapes.Make(dtypes.Float32, 64, 8))
	_, err = step.Run(t.Context(), other, tensors.FromShape(shapes.Make(dtypes.Float32, 64, 1)))
	var trace *strategy.TraceError
	require.ErrorAs(t, err, &trace)
	var refused *strategy.StepFileError
	require.ErrorAs(t, err, &refused)
	assert.Equal(t, strategy.StepArguments, refused.Reason)
	assert.ErrorContains(t, err, "argument 0 is PerReplica(Float32[32 8], none), and the step takes PerReplica(Float32[16 8], none)")
}

func TestASavedFunctionRuns(t *testing.T) {
	ctx := t.Context()
	sys := openCPU(t, 4)
	strat, err := strategy.New(sys, strategy.Options{LogicalDevices: 2})
	require.NoError(t, err)
	defer strat.Close()
	f := strat.Function(func(rc *strategy.ReplicaContext, in []*graph.Node) []*graph.Node {
		return []*graph.Node{rc.AllReduce(strategy.Sum, graph.Add(logical.Split(in[0], 2), graph.ConvertDType(rc.ReplicaIDInSyncGroup(), dtypes.Float32)))}
	}, strategy.FunctionOptions{Name: "sum", Arguments: []logical.Annotation{logical.SplitInto(2)}})
	compiled, err := f.Compiled(ctx, []float32{1, 2})
	require.NoError(t, err)
	var b bytes.Buffer
	require.NoError(t, compiled.Save(&b))
	loaded, err := strat.LoadStep(ctx, &b, nil)
	require.NoError(t, err)
	results, err := loaded.Run(ctx, []float32{10, 20})
	require.NoError(t, err)
	value, err := results[0].Local(ctx, 1)
	require.NoError(t, err)
	assert.Equal(t, []float32{21, 41}, tensors.MustCopyFlatData[float32](value))
	_, err = strat.LoadTrainStep(ctx, bytes.NewReader(mustSave(t, compiled)), nil)
	require.ErrorContains(t, err, "no training step")
}

func mustSave(t *testing.T, c *strategy.Compiled) []byte {
	t.Helper()
	var b bytes.Buffer
	require.NoError(t, c.Save(&b))
	return b.Bytes()
}

func TestAStepThatDoesNotFitIsRefused(t *testing.T) {
	sys := openCPU(t, 4)
	file, store, _ := savedStep(t, sys)
	edit := func(old, new string) []byte { return strategy.RewriteStep(t, file, old, new) }
	for name, c := range map[string]struct {
		file    []byte
		devices int
		opts    strategy.Options
		store   *model.Store
		want    strategy.StepReason
	}{
		"empty":              {file: nil, want: strategy.StepNotAFile},
		"text":               {file: []byte("module {}"), want: strategy.StepNotAFile},
		"cut":                {file: file[:len(file)/2], want: strategy.StepDamaged},
		"only its beginning": {file: file[:20], want: strategy.StepDamaged},
		"a flipped bit":      {file: flipped(file, len(file)/3), want: strategy.StepDamaged},
		"longer":             {file: append(bytes.Clone(file), 0), want: strategy.StepDamaged},
		"another version":    {file: edit(`"version":2`, `"version":1`), want: strategy.StepVersion},
		"another plugin":     {file: edit(`"plugin":"cpu; PJRT 0.`, `"plugin":"cpu; PJRT 9.`), want: strategy.StepPlugin},
		"other devices":      {file: edit(`"devices":"cpu"`, `"devices":"TPU v4"`), want: strategy.StepDevices},
		"a bad dtype":        {file: edit(`"dtype":"Float32"`, `"dtype":"Float31"`), want: strategy.StepDamaged},
		"a bad layout":       {file: edit(`"kind":"split"`, `"kind":"smash"`), want: strategy.StepDamaged},
		"a bad update":       {file: edit(`"updates":[`, `"updates":[-7,`), want: strategy.StepDamaged},
		"another topology":   {devices: 8, want: strategy.StepTopology},
		"another assignment": {opts: strategy.Options{Replicas: 1, LogicalDevices: 4}, want: strategy.StepAssignment},
		"no store":           {store: nil, want: strategy.StepVariable},
		"an empty store":     {store: storeWithSeed(), want: strategy.StepVariable},
		"other rules":        {opts: strategy.Options{Replicas: 2, LogicalDevices: 2}, store: store, want: strategy.StepVariable},
	} {
		t.Run(name, func(t *testing.T) {
			if c.devices == 0 {
				c.devices = 4
			}
			if c.opts.Replicas == 0 {
				c.opts = annotatedOptions()
			}
			if c.want == strategy.StepTopology || c.want == strategy.StepAssignment || c.want == strategy.StepVariable {
				c.file = file
			}
			strat, err := strategy.New(openCPU(t, c.devices), c.opts)
			require.NoError(t, err)
			defer strat.Close()
			_, err = strat.LoadTrainStep(t.Context(), bytes.NewReader(c.file), c.store)
			var refused *strategy.StepFileError
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
	if !aotChild(t) {
		return
	}
	strat := ahead(t, "v5e:2x2", annotatedOptions())
	x, y := batchShapes(32)
	compiled, err := annotatedStep(strat).Compiled(context.Background(), x, y)
	require.NoError(t, err)
	file := mustSave(t, compiled)
	var ahead *strategy.AheadOfTimeError
	_, err = strat.LoadStep(t.Context(), bytes.NewReader(file), nil)
	require.ErrorAs(t, err, &ahead)
	cpu, err := strategy.New(openCPU(t, 4), annotatedOptions())
	require.NoError(t, err)
	defer cpu.Close()
	_, err = cpu.LoadStep(t.Context(), bytes.NewReader(file), nil)
	var refused *strategy.StepFileError
	require.ErrorAs(t, err, &refused)
	assert.Equal(t, strategy.StepPlugin, refused.Reason)
	assert.ErrorContains(t, err, "tpu; PJRT 0.")
}

func TestStepsAreCachedAcrossStrategies(t *testing.T) {
	sys := openCPU(t, 4)
	programs, err := cache.Open(t.TempDir(), cache.Options{Key: make([]byte, 32)})
	require.NoError(t, err)
	var first []float64
	for range 2 {
		opts := annotatedOptions()
		opts.Compiler = programs
		strat, err := strategy.New(sys, opts)
		require.NoError(t, err)
		got := losses(t, strat.TrainStep(storeWithSeed(), optimizer.Adam().LearningRate(0.01).Done(), annotated(2)), 0, 3)
		require.NoError(t, strat.Close())
		if first == nil {
			first = got
		}
		assert.Equal(t, first, got)
	}
	assert.Equal(t, cache.Stats{Hits: 1, Misses: 1}, programs.Stats())
}

func TestAStepFromACacheIsSavedWhole(t *testing.T) {
	ctx := t.Context()
	sys := openCPU(t, 4)
	programs, err := cache.Open(t.TempDir(), cache.Options{Key: make([]byte, 32)})
	require.NoError(t, err)
	opts := annotatedOptions()
	opts.Compiler = programs
	for range 2 { // a miss, then a hit
		strat, err := strategy.New(sys, opts)
		require.NoError(t, err)
		store := storeWithSeed()
		step := strat.TrainStep(store, optimizer.Adam().LearningRate(0.01).Done(), annotated(2))
		x, y := batchOf(0)
		compiled, err := step.Compiled(ctx, x, y)
		require.NoError(t, err)
		file := mustSave(t, compiled)
		there, err := strategy.New(sys, annotatedOptions())
		require.NoError(t, err)
		loaded, err := there.LoadTrainStep(ctx, bytes.NewReader(file), store)
		require.NoError(t, err)
		assert.Equal(t, losses(t, step, 0, 2), losses(t, loaded, 0, 2))
		require.NoError(t, strat.Close())
		require.NoError(t, there.Close())
	}
	assert.Equal(t, int64(1), int64(programs.Stats().Hits))
}

func FuzzDecodeStep(f *testing.F) {
	f.Add([]byte("tpustrategy step\n"))
	f.Add(strategy.EncodeStep([]byte(`{"version":2}`), nil, nil))
	f.Add(strategy.EncodeStep([]byte(`{"version":2,"axes":[{"Name":"replica","Size":2}],"arguments":[{"dtype":"Float32","spec":"#sdy.sharding<@mesh, []>","annotation":{"kind":"none"}}]}`), []byte("module"), []byte("code")))
	f.Add(strategy.EncodeStep([]byte(`{"version":2,"steps":3,"axes":[{"Name":"replica","Size":1}],"arguments":[{"name":"v","variable":true,"distributed":{"synchronization":"ON_READ","aggregation":"SUM"},"dtype":"Float32","spec":"#sdy.sharding<@mesh, [{}]>","global":[1],"shard":[1],"per_replica":true,"annotation":{"kind":"none"}},{"name":"x","dtype":"Float32","local":[2],"global":[3,2],"shard":[3,2],"per_step":true,"spec":"#sdy.sharding<@mesh, [{}, {}]>","annotation":{"kind":"none"}}]}`), nil, nil))
	f.Add(strategy.EncodeStep([]byte(`{"version":9}`), nil, nil))
	f.Fuzz(func(t *testing.T, data []byte) {
		// The checksum is made to fit, so that what lies behind it is reached.
		for _, file := range [][]byte{data, strategy.Resum(data)} {
			if err := strategy.DecodeStep(file); err != nil && !strings.HasPrefix(err.Error(), "strategy: step file: ") {
				t.Fatal(err)
			}
		}
		if json.Valid(data) {
			_ = strategy.DecodeStep(strategy.EncodeStep(data, nil, nil))
		}
	})
}
