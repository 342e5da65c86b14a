package strategy_test

import (
	"context"
	"testing"

	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/core/tensors"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/internal/test/strategytest"
	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/strategy"
)

func TestHostValuesThatAreNoTensorsAreErrors(t *testing.T) {
	ctx := context.Background()
	strat := strategytest.New(t, 2, 1)
	f := strat.Function(func(_ *strategy.ReplicaContext, in []*graph.Node) []*graph.Node { return in },
		strategy.FunctionOptions{})
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

func TestHostValuesThatDoNotFitAreErrorsOfAKind(t *testing.T) {
	ctx := context.Background()
	s := strategytest.New(t, 2, 1)
	var none logical.Annotation
	_, mirrored := s.Mirror(ctx, []any{1, 2}, none)
	each := strategytest.OK(s.PerReplica(ctx, []any{1, 2}, none))
	_, parts := s.Mirror(ctx, each, none)
	_, few := s.PerReplica(ctx, []any{1}, none)
	_, other := s.PerReplica(ctx, []any{1, []int{1}}, none)
	_, uneven := s.SplitBatch(ctx, []int{1, 2, 3}, none, false)
	_, scalar := s.SplitBatch(ctx, 1, none, false)
	for text, c := range map[string]struct {
		err  error
		kind errkind.Kind
	}{
		"strategy: mirror: no tensor: a []interface {} is a nest":                               {mirrored, errkind.ValueError},
		"strategy: per-replica value: 1 values for 2 replicas; give one value for each replica": {few, errkind.ValueError},
		"strategy: per-replica value: that of replica 1 is (Int64)[1], that of replica 0 (Int64); " +
			"give values of one dtype and rank": {other, errkind.InvalidArgumentError},
		"a batch of 3 rows does not divide among 2 replicas; pad it to 4 or drop 1 rows": {uneven, errkind.ValueError},
		"strategy: mirror: PerReplica(Int64[], none), which has a value for each " +
			"replica; reduce it first": {parts, errkind.ValueError},
		"a scalar is no batch; mirror it": {scalar, errkind.ValueError},
	} {
		var own *strategy.Error
		require.ErrorAs(t, c.err, &own)
		assert.ErrorContains(t, c.err, text)
		assert.Equal(t, c.kind, errkind.KindOf(c.err))
	}
}
