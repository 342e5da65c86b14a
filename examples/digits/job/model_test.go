package job

import (
	"context"
	"slices"
	"testing"

	"github.com/gomlx/gomlx/core/tensors"
	"github.com/gomlx/gomlx/ml/model"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/internal/test/plugintest"
	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/tpu/system"
)

// TestAccuracyCountsExactly holds the devices' count against plain Go, with a last batch that is
// mostly padding.
func TestAccuracyCountsExactly(t *testing.T) {
	ctx := context.Background()
	sys, err := system.Open(ctx, system.Options{CPUDevices: 8, Plugin: plugintest.Path(t, "cpu")})
	require.NoError(t, err)
	defer func() { require.NoError(t, sys.Close()) }()
	data, err := Digits(5)
	require.NoError(t, err)
	cfg, err := Config{Replicas: 4, Logical: 2, Devices: 8, Steps: 30, Batch: 44, Seed: 5}.normalize().fit(data)
	require.NoError(t, err)
	require.NotZero(t, data.Test.Len()%cfg.Batch)
	opts, err := options(sys, cfg)
	require.NoError(t, err)
	strat, err := strategy.New(sys, opts)
	require.NoError(t, err)
	defer func() { require.NoError(t, strat.Close()) }()
	store := model.NewStore()
	store.SetParam(model.ParamInitialSeed, int64(5))
	r := runner{strat: strat, store: store, cfg: cfg, data: data, hidden: data.Hidden, result: &Result{}}
	require.NoError(t, r.train(ctx))

	require.NoError(t, strat.Variables(store).Pull(ctx))
	flat := func(path string) []float32 {
		value, err := store.GetVariable(path).Value()
		require.NoError(t, err)
		return tensors.MustCopyFlatData[float32](value)
	}
	dense := func(x []float32, scope string, relu bool) []float32 {
		w, b := flat("/"+scope+"/dense/weights"), flat("/"+scope+"/dense/biases")
		y := slices.Clone(b)
		for i, v := range x {
			for j := range y {
				y[j] += v * w[i*len(y)+j]
			}
		}
		for j := range y {
			if relu {
				y[j] = max(y[j], 0)
			}
		}
		return y
	}
	right := 0
	for i, label := range data.Test.Labels {
		y := dense(dense(data.Test.Images[i*64:(i+1)*64], "hidden", true), "output", false)
		if y[label] == slices.Max(y) {
			right++
		}
	}
	assert.Equal(t, float64(right)/float64(data.Test.Len()), *r.result.Accuracy)
	assert.Greater(t, *r.result.Accuracy, 0.5)
}
