package strategy_test

import (
	"context"
	"testing"

	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/core/tensors"
	"github.com/stretchr/testify/assert"

	"github.com/tpustrategy/tpustrategy/internal/strategytest"
	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/strategy"
)

func TestHostValuesThatAreNoTensorsAreErrors(t *testing.T) {
	ctx := context.Background()
	strat := strategytest.New(t, 2, 1)
	f := strat.Function(func(_ *strategy.ReplicaContext, in []*graph.Node) []*graph.Node { return in }, strategy.FunctionOptions{})
	var none *tensors.Tensor
	for name, value := range map[string]any{
		"nil":           nil,
		"a nil tensor":  none,
		"a string":      "x",
		"a channel":     make(chan int),
		"a function":    func() {},
		"a map":         map[string]int{"a": 1},
		"ragged slices": [][]float32{{1}, {2, 3}},
		"a struct":      struct{ X int }{1},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := strat.Mirror(ctx, value, logical.Annotation{})
			assert.Error(t, err)
			_, err = strat.SplitBatch(ctx, value, logical.Annotation{}, false)
			assert.Error(t, err)
			_, err = f.Run(ctx, value)
			assert.Error(t, err)
		})
	}
	_, err := f.Run(ctx, float32(1))
	assert.NoError(t, err, "the function is usable after errors")
}
