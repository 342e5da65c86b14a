package decoder_test

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"testing"

	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/ml/model"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/internal/test/plugintest"
	"github.com/tpustrategy/tpustrategy/internal/test/strategytest"
	"github.com/tpustrategy/tpustrategy/lm/decoder"
	"github.com/tpustrategy/tpustrategy/lm/pretrained"
	"github.com/tpustrategy/tpustrategy/lm/weights"
	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/lowering/precision"
	"github.com/tpustrategy/tpustrategy/strategy"
)

// official is a tiny Llama of the official Python package, transformers, with the logits that the
// package computes. lm/pretrained/testdata/make.py generates these files.
const official = "../pretrained/testdata/llama"

// TestLogitsAreThoseOfTheOfficialPackage loads the official model's weights into this one by the
// rules for Llama, before and after the first trace.
func TestLogitsAreThoseOfTheOfficialPackage(t *testing.T) {
	config, err := weights.ReadConfig(official)
	require.NoError(t, err)
	var want struct {
		Tokens [][]int32
		Logits [][][]float64
	}
	text, err := os.ReadFile(official + "/expected.json")
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(text, &want))
	rows, places := len(want.Tokens), len(want.Tokens[0])
	c := decoder.Config{Layers: config.Layers, Width: config.Width, Heads: config.Heads, KeyHeads: config.KeyHeads,
		Hidden:     config.Hidden,
		Vocabulary: config.Vocabulary, Sequence: places, Batch: rows, RotaryBase: config.RotaryBase, Epsilon: config.Epsilon}
	require.Equal(t, c.Width/c.Heads, config.HeadSize)
	sys := plugintest.System(t, 8)
	for _, form := range []struct {
		replicas, logical int
		state             logical.StateSharding
		policy            precision.Policy
		traced            bool
		tolerance         float64
	}{
		{1, 1, logical.ShardNothing, precision.Policy{}, false, 5e-6},
		{4, 2, logical.ShardNothing, precision.Policy{}, true, 5e-6},
		{4, 2, logical.ShardParameters, precision.Policy{}, false, 5e-6},
		{1, 1, logical.ShardNothing, precision.MixedBFloat16, true, 0.06},
		{4, 2, logical.ShardParameters, precision.MixedBFloat16, true, 0.06},
	} {
		t.Run(fmt.Sprintf("%dx%d %s %v traced=%t", form.replicas, form.logical, form.state, form.policy.Compute, form.traced),
			func(t *testing.T) {
				require.NoError(t, c.Validate(form.replicas, form.logical, 1))
				s := strategytest.On(t, sys, strategy.Options{Replicas: form.replicas, LogicalDevices: form.logical,
					Variables: append(decoder.Rules(), strategytest.Share(form.state, 2)...)})
				store := model.NewStore()
				logits := s.Function(func(rc *strategy.ReplicaContext, in []*graph.Node) []*graph.Node {
					return form.policy.Forward(rc.Graph(), in, func(in []*graph.Node) []*graph.Node {
						return []*graph.Node{c.Logits(rc, in[0], nil)}
					})
				}, strategy.FunctionOptions{Name: "logits", Store: store, SplitBatch: true})
				if form.traced {
					_, err := logits.Compiled(t.Context(), shapes.Make(c.BatchShape().DType, rows, places))
					require.NoError(t, err)
				}
				f, err := weights.Open(official)
				require.NoError(t, err)
				defer f.Close()
				_, err = pretrained.Load(t.Context(), s, store, f, weights.LlamaRules(config, weights.DenseNames()),
					pretrained.Options{})
				require.NoError(t, err)
				results, err := logits.Run(t.Context(), want.Tokens)
				require.NoError(t, err)
				defer results[0].Close()
				var got []float64
				for r := range form.replicas {
					x, err := results[0].Local(t.Context(), r)
					require.NoError(t, err)
					got = append(got, strategytest.Numbers(t, x)...)
				}
				require.Len(t, got, rows*places*c.Vocabulary)
				worst, largest := 0.0, 0.0
				for i, x := range got {
					y := want.Logits[i/c.Vocabulary/places][i/c.Vocabulary%places][i%c.Vocabulary]
					worst, largest = max(worst, math.Abs(x-y)), max(largest, math.Abs(y))
				}
				t.Logf("%.2g", worst/largest)
				assert.Less(t, worst/largest, form.tolerance)
			})
	}
}
