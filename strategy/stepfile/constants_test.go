package stepfile_test

import (
	"bytes"
	"crypto/sha256"
	"testing"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/core/tensors"
	"github.com/gomlx/gomlx/ml/model"
	"github.com/gomlx/gomlx/ml/train/optimizer"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/internal/test/plugintest"
	"github.com/tpustrategy/tpustrategy/internal/test/strategytest"
	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/strategy/stepfile"
	"github.com/tpustrategy/tpustrategy/strategy/train"
)

// tables returns two large constants of different dtypes.
func tables() (targets, scales *tensors.Tensor) {
	a, b := make([]float32, 1<<18), make([]int64, 1<<17)
	for i := range a {
		a[i] = float32(i%7) / 8
	}
	for i := range b {
		b[i] = int64(i % 3)
	}
	return tensors.FromFlatDataAndDimensions(a, 1<<17, 2), tensors.FromFlatDataAndDimensions(b, 1<<17)
}

// tableStep is a training step whose loss reads rows of two large constants.
func tableStep(s *strategy.TPUStrategy, store *model.Store) *train.Step {
	targets, scales := tables()
	return strategytest.OK(train.New(s, store, optimizer.Adam().LearningRate(0.1).Done(), func(rc *strategy.ReplicaContext,
		in []*graph.Node) *graph.Node {
		g, ids := in[0].Graph(), graph.InsertAxes(in[0], -1)
		w := rc.Scope("model").VariableWithValue("w", []float32{1, 2}).NodeValue(g)
		rows := graph.Gather(graph.ConstTensor(g, targets), ids)
		scale := graph.ConvertDType(graph.Gather(graph.ConstTensor(g, scales), ids), dtypes.Float32)
		return graph.ReduceAllMean(graph.Mul(graph.InsertAxes(scale, -1),
			graph.Square(graph.Sub(rows, graph.InsertAxes(w, 0)))))
	}, train.Options{}))
}

func tableLosses(t *testing.T, step *train.Step, n int) (all []float64) {
	t.Helper()
	for i := range n {
		loss, err := step.Run(t.Context(), []int32{int32(i), int32(i + 1), 5000, 70_000, 100_000, 3, 1, 131_071})
		require.NoError(t, err)
		value, err := loss.Float64(t.Context())
		require.NoError(t, err)
		all = append(all, value)
	}
	return all
}

// A saved step contains its large constants. A loaded step therefore computes the same numbers,
// also in another strategy, and is saved as the same file again.
func TestASavedStepHasItsLargeConstants(t *testing.T) {
	for _, mesh := range [][2]int{{2, 1}, {2, 2}} {
		opts := strategy.Options{Replicas: mesh[0], LogicalDevices: mesh[1]}
		strat := strategytest.On(t, plugintest.System(t, mesh[0]*mesh[1]), opts)
		store := strategytest.SeededStore()
		step := tableStep(strat, store)
		compiled, err := step.Compiled(t.Context(), shapes.Make(dtypes.Int32, 8))
		require.NoError(t, err)
		elements := func(file []byte) []byte { return file[len(file)-sha256.Size-2<<20 : len(file)-sha256.Size] }
		before := elements(mustSave(t, compiled))
		want := tableLosses(t, step, 4)
		file := mustSave(t, compiled)
		assert.True(t, bytes.Equal(before, elements(file)), "constants on the host and on the devices are saved alike")

		there := strategytest.On(t, plugintest.System(t, mesh[0]*mesh[1]), opts)
		again := strategytest.SeededStore()
		_ = again.RootScope().In("model").VariableWithValue("w", []float32{1, 2})
		fresh := tableStep(there, again) // creates the optimizer's variables
		_, err = fresh.Compiled(t.Context(), shapes.Make(dtypes.Int32, 8))
		require.NoError(t, err)
		loaded, err := stepfile.LoadTrain(t.Context(), there, bytes.NewReader(file), again)
		require.NoError(t, err)
		assert.Equal(t, want, tableLosses(t, loaded, 4))
		compiled, err = loaded.Compiled(t.Context(), shapes.Make(dtypes.Int32, 8))
		require.NoError(t, err)
		assert.True(t, bytes.Equal(file, mustSave(t, compiled)), "a loaded step is saved as it was")
	}
}

func TestDamagedConstantsAreRefused(t *testing.T) {
	strat := strategytest.New(t, 2, 1)
	targets, scales := tables()
	f := strat.Function(func(_ *strategy.ReplicaContext, in []*graph.Node) []*graph.Node {
		g := in[0].Graph()
		return []*graph.Node{graph.Add(in[0], graph.ReduceAllSum(graph.ConstTensor(g, targets))),
			graph.ReduceAllSum(graph.ConstTensor(g, scales))}
	}, strategy.FunctionOptions{Name: "sums"})
	compiled, err := f.Compiled(t.Context(), float32(1))
	require.NoError(t, err)
	file := mustSave(t, compiled)
	for name, edit := range map[string][2]string{
		"more bytes than the constants":  {`"constant_bytes":2097152`, `"constant_bytes":2097153`},
		"fewer bytes than the constants": {`"constant_bytes":2097152`, `"constant_bytes":2097151`},
		"more bytes than the file":       {`"constant_bytes":2097152`, `"constant_bytes":99999999999`},
		"no bytes":                       {`"constant_bytes":2097152`, `"constant_bytes":0`},
		"a constant that is no variable": {`"name":"constant_0","variable":true`, `"name":"constant_0"`},
		"a variable that is no constant": {`"constant":true,`, ``},
		"another shape": {`"local":[131072,2],"global":[131072,2],"shard":[131072,2]`,
			`"local":[131072,3],"global":[131072,3],"shard":[131072,3]`},
		"an older version": {`"version":3`, `"version":1`},
	} {
		_, err := stepfile.Load(t.Context(), strat, bytes.NewReader(stepfile.Rewrite(t, file, edit[0], edit[1])), nil)
		var refused *stepfile.Error
		assert.ErrorAs(t, err, &refused, name)
	}
	loaded, err := stepfile.Load(t.Context(), strat, bytes.NewReader(file), nil)
	require.NoError(t, err)
	require.NoError(t, f.Close()) // the loaded function keeps its own reference to the constants
	results, err := loaded.Run(t.Context(), float32(1))
	require.NoError(t, err)
	value, err := results[1].Local(t.Context(), 1)
	require.NoError(t, err)
	assert.Equal(t, int64(131071), value.Value())
}

// A step that was compiled ahead of time is saved with its large constants.
func TestAOTStepsAreSavedWithTheirLargeConstants(t *testing.T) {
	if !plugintest.TPUChild(t) {
		return
	}
	strat := strategytest.Ahead(t, "v5e:2x4", strategy.Options{LogicalDevices: 2})
	compiled, err := tableStep(strat, strategytest.SeededStore()).Compiled(t.Context(), shapes.Make(dtypes.Int32, 8))
	require.NoError(t, err)
	assert.Less(t, len(compiled.Module.Text), 100_000)
	assert.Greater(t, len(mustSave(t, compiled)), 2<<20)
}
