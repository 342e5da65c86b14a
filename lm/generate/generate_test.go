package generate_test

import (
	"fmt"
	"testing"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/core/tensors"
	"github.com/gomlx/gomlx/ml/model"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/internal/test/plugintest"
	"github.com/tpustrategy/tpustrategy/internal/test/strategytest"
	"github.com/tpustrategy/tpustrategy/internal/test/transformer"
	"github.com/tpustrategy/tpustrategy/lm/generate"
	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/strategy"
)

// devices returns the devices that the tests' meshes share.
const devices = 8

// prompts have different lengths, one longer than a chunk. Their number is not a multiple of the
// number of replicas.
var prompts = [][]int32{{3, 1, 4, 1, 5}, {7}, {2, 7, 1, 8, 2, 8, 1, 8, 2, 8}, {1, 6}, {1, 4, 1, 4, 2, 1, 3, 5, 6}}

// made is the number of tokens that the tests generate for each prompt.
const made = 9

// gpt and llama are tiny models with enough positions for the prompts.
func gpt() transformer.Config   { return longer(transformer.Tiny()) }
func llama() transformer.Config { return longer(transformer.TinyLlama()) }

func longer(c transformer.Config) transformer.Config {
	c.Sequence = 20
	return c
}

// small returns options with which the prompts and the generated tokens need several launches.
func small(c transformer.Config) generate.Options {
	o := c.Generator()
	o.PromptTokensPerLaunch, o.TokensPerLaunch = 4, 4
	return o
}

// whole generates without a cache: the complete sequence is evaluated for each token. It returns
// the tokens of each prompt and the logits from which each token was selected.
func whole(t testing.TB, s *strategy.TPUStrategy, store *model.Store, m generate.ModelFunc,
	prompts [][]int32) (tokens [][]int32, logits [][][]float32) {
	t.Helper()
	f := s.Function(func(rc *strategy.ReplicaContext, in []*graph.Node) []*graph.Node {
		return []*graph.Node{m(rc, in[0], nil)}
	}, strategy.FunctionOptions{Store: store, Name: "whole"})
	length := 0
	for _, p := range prompts {
		length = max(length, len(p)+made)
	}
	all := make([]int32, len(prompts)*length)
	for i, p := range prompts {
		copy(all[i*length:], p)
	}
	tokens, logits = make([][]int32, len(prompts)), make([][][]float32, len(prompts))
	for n := range made {
		out, err := f.Run(t.Context(), tensors.FromFlatDataAndDimensions(all, len(prompts), length))
		require.NoError(t, err)
		value, err := out[0].Local(t.Context(), 0)
		require.NoError(t, err)
		flat, vocabulary := tensors.MustCopyFlatData[float32](value), value.Shape().Dim(2)
		for i, p := range prompts {
			at := i*length + len(p) + n - 1
			row := flat[at*vocabulary : (at+1)*vocabulary]
			best := 0
			for k, x := range row {
				if x > row[best] {
					best = k
				}
			}
			tokens[i], logits[i] = append(tokens[i], int32(best)), append(logits[i], row)
			all[at+1] = int32(best)
		}
	}
	return tokens, logits
}

// recorder is a model that stores the logits of the generated tokens by position.
type recorder struct {
	model generate.ModelFunc
	kept  *strategy.Variable // [rows, length, vocabulary] on each replica
}

func newRecorder(t *testing.T, s *strategy.TPUStrategy, m generate.ModelFunc, rows int,
	c transformer.Config) *recorder {
	t.Helper()
	shape := shapes.Make(dtypes.Float32, rows/s.NumReplicasInSync(), c.Sequence, c.Vocabulary)
	kept, err := s.NewVariable(t.Context(), tensors.FromShape(shape), strategy.VariableOptions{Name: "logits",
		Synchronization: strategy.OnRead})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, kept.Close()) })
	return &recorder{m, kept}
}

func (r *recorder) logits(rc *strategy.ReplicaContext, tokens *graph.Node, cache *generate.Cache) *graph.Node {
	out := r.model(rc, tokens, cache)
	if tokens.Shape().Dim(1) == 1 {
		shape := r.kept.Shape()
		places := shape.Clone()
		places.DType = dtypes.Int32
		here := graph.Equal(graph.Iota(rc.Graph(), places, 1),
			graph.BroadcastToShape(graph.InsertAxes(cache.Positions(tokens), -1), places))
		rc.Assign(r.kept, graph.Where(here, graph.BroadcastToShape(graph.ConvertDType(out, dtypes.Float32), shape),
			rc.Read(r.kept)))
	}
	return out
}

// of returns the logits from which the tokens of a prompt were selected.
func (r *recorder) of(t *testing.T, prompt, length int) (all [][]float32) {
	t.Helper()
	dims := r.kept.Shape().Dimensions
	value, err := r.kept.Local(t.Context(), prompt/dims[0])
	require.NoError(t, err)
	flat := tensors.MustCopyFlatData[float32](value)
	for n := range made {
		at := (prompt%dims[0]*dims[1] + length + n - 1) * dims[2]
		all = append(all, flat[at:at+dims[2]])
	}
	return all
}

// equalLogits compares logits with the logits without a cache.
func equalLogits(t *testing.T, want, got [][]float32, tolerance float64, what ...any) {
	t.Helper()
	for i := range want {
		require.InDeltaSlice(t, want[i], got[i], tolerance, what...)
	}
}

// seeded returns a store that always has the same initial values.
func seeded() *model.Store { return strategytest.SeededStore() }

// TestTheCacheGivesWhatWholeSequencesGive compares tokens and logits on every mesh, with unrolled
// layers and layers in a loop, with separate and shared key heads, and with sharded parameters.
func TestTheCacheGivesWhatWholeSequencesGive(t *testing.T) {
	sys := plugintest.System(t, devices)
	for _, c := range []struct {
		name   string
		config transformer.Config
		loops  []bool
		meshes [][2]int
		state  logical.StateSharding
	}{
		{"gpt", gpt(), []bool{false, true}, [][2]int{{1, 1}, {4, 2}}, logical.ShardNothing},
		{"llama", llama(), []bool{true, false}, [][2]int{{8, 1}, {2, 4}}, logical.ShardParameters},
	} {
		one := strategytest.On(t, sys, c.config.Options(1, 1))
		wantTokens, wantLogits := whole(t, one, seeded(), c.config.Logits, prompts)
		for i, mesh := range c.meshes {
			t.Run(fmt.Sprintf("%s %dx%d", c.name, mesh[0], mesh[1]), func(t *testing.T) {
				config := c.config
				config.Loop, config.Shared = c.loops[i], strategytest.Share(c.state, 2)
				s := strategytest.On(t, sys, config.Options(mesh[0], mesh[1]))
				rows := (len(prompts) + mesh[0] - 1) / mesh[0] * mesh[0]
				r := newRecorder(t, s, config.Logits, rows, config)
				g, err := generate.New(s, seeded(), r.logits, small(config))
				require.NoError(t, err)
				defer g.Close()
				got, err := g.Generate(t.Context(), prompts, generate.Sampling{MaxTokens: made})
				require.NoError(t, err)
				for i, p := range prompts {
					assert.Equal(t, wantTokens[i], got[i].Tokens)
					assert.False(t, got[i].Stopped)
					equalLogits(t, wantLogits[i], r.of(t, i, len(p)), 1e-5, "prompt %d", i)
				}
			})
		}
	}
}
