package strategy_test

import (
	"context"
	"testing"

	"github.com/gomlx/gomlx/core/graph"
	"github.com/stretchr/testify/assert"

	"github.com/tpustrategy/tpustrategy/internal/test/strategytest"
	"github.com/tpustrategy/tpustrategy/strategy"
)

func TestACancelledRunTracesNothing(t *testing.T) {
	s := strategytest.New(t, 1, 1)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	traces := 0
	for range 20 {
		_, err := s.Function(func(rc *strategy.ReplicaContext, _ []*graph.Node) []*graph.Node {
			traces++
			return []*graph.Node{graph.Const(rc.Graph(), float32(1))}
		}, strategy.FunctionOptions{}).Run(ctx)
		assert.ErrorIs(t, err, context.Canceled)
	}
	assert.Zero(t, traces)
}
