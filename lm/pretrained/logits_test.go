package pretrained_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/gomlx/ml/model"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/internal/test/plugintest"
	"github.com/tpustrategy/tpustrategy/internal/test/strategytest"
	"github.com/tpustrategy/tpustrategy/lm/pretrained"
	"github.com/tpustrategy/tpustrategy/lm/weights"
	"github.com/tpustrategy/tpustrategy/logical"
)

// The official Python package transformers generated the files and the logits in testdata, with
// testdata/make.py.

// TestLogitsAreThoseOfTheOfficialPackage loads tiny Llama and Gemma models on several meshes, with
// layers in a loop and unrolled, before and after the first trace.
func TestLogitsAreThoseOfTheOfficialPackage(t *testing.T) {
	sys := plugintest.System(t, 8)
	for _, c := range []struct {
		name                     string
		replicas, logicalDevices int
		state                    logical.StateSharding
		loop, traced             bool
		compute                  dtypes.DType
		tolerance                float64
	}{
		{"llama", 1, 1, logical.ShardNothing, false, false, dtypes.Float32, 3e-6},
		{"llama", 1, 1, logical.ShardNothing, true, true, dtypes.Float32, 3e-6},
		{"llama", 4, 2, logical.ShardNothing, true, false, dtypes.Float32, 3e-6},
		{"llama", 4, 2, logical.ShardParameters, true, true, dtypes.Float32, 3e-6},
		{"llama", 4, 2, logical.ShardParameters, false, true, dtypes.BFloat16, 0.06},
		{"gemma", 1, 1, logical.ShardNothing, true, false, dtypes.Float32, 3e-6},
		{"gemma", 4, 2, logical.ShardNothing, false, true, dtypes.Float32, 3e-6},
		{"gemma", 4, 2, logical.ShardParameters, true, true, dtypes.Float32, 3e-6},
		{"gemma", 1, 1, logical.ShardNothing, true, true, dtypes.BFloat16, 0.06},
	} {
		t.Run(fmt.Sprintf("%s %dx%d %s loop=%t traced=%t %s", c.name, c.replicas, c.logicalDevices, c.state, c.loop, c.traced,
			c.compute), func(t *testing.T) {
			ctx := context.Background()
			config, want := read(t, "testdata/"+c.name)
			d := decoder{Config: config, loop: c.loop, tied: config.TiedEmbeddings && c.loop, compute: c.compute}
			s := strategytest.On(t, sys, d.options(c.replicas, c.logicalDevices, c.state))
			f, err := weights.Open("testdata/" + c.name)
			require.NoError(t, err)
			defer f.Close()
			store := model.NewStore()
			logits := d.function(s, store)
			if c.traced {
				_, err := logits.Compiled(ctx, batch(want.Tokens))
				require.NoError(t, err)
			}
			report, err := pretrained.Load(ctx, s, store, f, d.rules(), pretrained.Options{})
			require.NoError(t, err)
			if c.traced {
				assert.Empty(t, report.InStore)
				assert.Positive(t, report.DeviceBytes)
			} else {
				assert.Empty(t, report.OnDevices)
			}
			got := run(t, s, logits, want.Tokens)
			difference := far(want.Logits, got)
			t.Logf("%.2g; %v", difference, report)
			assert.Less(t, difference, c.tolerance)
		})
	}
}
