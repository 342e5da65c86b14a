package generate_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/internal/test/plugintest"
	"github.com/tpustrategy/tpustrategy/internal/test/strategytest"
	"github.com/tpustrategy/tpustrategy/lm/generate"
	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/tpu/simhost"
)

// TestProcessesReceiveAllOutputs generates on two processes with one replica each.
func TestProcessesReceiveAllOutputs(t *testing.T) {
	c := gpt()
	c.Layers = 1
	run := func(ctx context.Context, s *strategy.TPUStrategy) ([][]int32, error) {
		g, err := generate.New(s, seeded(), c.Logits, c.Generator())
		if err != nil {
			return nil, err
		}
		defer g.Close()
		out, err := g.Generate(ctx, prompts, generate.Sampling{MaxTokens: 4})
		return tokens(out), err
	}
	want, err := run(t.Context(), strategytest.New(t, 1, 1))
	require.NoError(t, err)
	errs := strategytest.OnProcesses(t, plugintest.System(t, 2), simhost.Options{Processes: 2},
		strategy.Options{Replicas: 2},
		func(ctx context.Context, s *strategy.TPUStrategy) error {
			got, err := run(ctx, s)
			assert.Equal(t, want, got, "process %d", s.Process())
			return err
		})
	strategytest.NoErrors(t, errs)
}
