package generate_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/internal/test/plugintest"
	"github.com/tpustrategy/tpustrategy/internal/test/strategytest"
	"github.com/tpustrategy/tpustrategy/lm/generate"
	"github.com/tpustrategy/tpustrategy/pjrt"
	"github.com/tpustrategy/tpustrategy/tpu/system"
)

// compilations counts the compilations of a strategy.
type compilations struct{ n atomic.Int32 }

func (c *compilations) Compile(ctx context.Context, client *pjrt.Client, program pjrt.Program,
	opts pjrt.CompileOptions) (*pjrt.LoadedExecutable, error) {
	c.n.Add(1)
	return client.Compile(ctx, program, opts)
}

// session is a generator of a tiny model on a mesh.
func session(t *testing.T, sys *system.System, mesh [2]int, count *compilations,
	change func(o *generate.Options)) *generate.Generator {
	t.Helper()
	c := gpt()
	c.Layers = 1
	options := c.Options(mesh[0], mesh[1])
	if count != nil {
		options.Compiler = count
	}
	o := small(c)
	change(&o)
	g, err := generate.New(strategytest.On(t, sys, options), seeded(), c.Logits, o)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, g.Close()) })
	return g
}

var drawn = generate.Sampling{MaxTokens: made, Temperature: 2, TopK: 30, TopP: 0.95, Seed: 7}

// tokens returns the tokens of outputs.
func tokens(out []generate.Output) (all [][]int32) {
	for _, o := range out {
		all = append(all, o.Tokens)
	}
	return all
}

// TestOutputsDependOnTheirPromptAlone draws the same tokens on other meshes, in other batches, and
// with one or many tokens per launch.
func TestOutputsDependOnTheirPromptAlone(t *testing.T) {
	sys := plugintest.System(t, devices)
	count := &compilations{}
	g := session(t, sys, [2]int{1, 1}, count, func(o *generate.Options) {})
	base, err := g.Generate(t.Context(), prompts, drawn)
	require.NoError(t, err)
	want := tokens(base)
	t.Log(want)
	for _, other := range []generate.Sampling{{MaxTokens: 3, Temperature: 1, TopK: 5, TopP: 0.5, Seed: 8}, drawn} {
		out, err := g.Generate(t.Context(), prompts, other)
		require.NoError(t, err)
		assert.Equal(t, other.Seed == drawn.Seed, assert.ObjectsAreEqual(want, tokens(out)), "the seed counts")
	}
	assert.EqualValues(t, 3, count.n.Load(), "the zeros of the cache, and two programs for all lengths of prompts")
	one, err := g.Generate(t.Context(), prompts[:1], drawn)
	require.NoError(t, err)
	assert.Equal(t, want[:1], tokens(one), "the prompt alone")

	for _, other := range []struct {
		name   string
		mesh   [2]int
		change func(o *generate.Options)
	}{
		{"2x4, one token a launch", [2]int{2, 4}, func(o *generate.Options) { o.TokensPerLaunch = 1 }},
		{"8x1, whole prompts", [2]int{8, 1}, func(o *generate.Options) { o.PromptTokensPerLaunch, o.TokensPerLaunch = 0, 0 }},
		{"1x1, two at a time", [2]int{1, 1}, func(o *generate.Options) { o.BatchSize, o.TokensPerLaunch = 2, 5 }},
	} {
		t.Run(other.name, func(t *testing.T) {
			out, err := session(t, sys, other.mesh, nil, other.change).Generate(t.Context(), prompts, drawn)
			require.NoError(t, err)
			assert.Equal(t, want, tokens(out))
		})
	}

	t.Run("stop", func(t *testing.T) {
		stopping := drawn
		stopping.Stop = []int32{want[0][3], want[4][0]}
		streamed := make([][]int32, len(prompts))
		stopping.Stream = func(prompt int, tokens []int32) error {
			streamed[prompt] = append(streamed[prompt], tokens...)
			assert.LessOrEqual(t, len(tokens), 4)
			return nil
		}
		out, err := g.Generate(t.Context(), prompts, stopping)
		require.NoError(t, err)
		for i, o := range out {
			end := 0
			for end < made && want[i][end] != stopping.Stop[0] && want[i][end] != stopping.Stop[1] {
				end++
			}
			assert.Equal(t, want[i][:end], append([]int32{}, o.Tokens...), "prompt %d", i)
			assert.Equal(t, end < made, o.Stopped, "prompt %d", i)
			assert.Equal(t, o.Tokens, streamed[i])
		}
	})
	t.Run("interrupted", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		stopping := drawn
		stopping.Stream = func(prompt int, tokens []int32) error { cancel(); return nil }
		out, err := g.Generate(ctx, prompts, stopping)
		require.ErrorIs(t, err, context.Canceled)
		assert.Equal(t, want[0][:4], out[0].Tokens, "what the launch made")
		mine := errors.New("mine")
		stopping.Stream = func(int, []int32) error { return mine }
		_, err = g.Generate(t.Context(), prompts, stopping)
		require.ErrorIs(t, err, mine)
		out, err = g.Generate(t.Context(), prompts, drawn)
		require.NoError(t, err)
		assert.Equal(t, want, tokens(out), "afterwards")
	})
}

var _ pjrt.Compiler = (*compilations)(nil)
