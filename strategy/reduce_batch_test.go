package strategy_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/internal/test/strategytest"
	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/pjrt/leaktest"
	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/strategy/eager"
)

// A variable may occur twice in a nest. A nest with other repetitions uses another program.
func TestAVariableIsReducedAsOftenAsANestHasIt(t *testing.T) {
	ctx := context.Background()
	s := strategytest.New(t, 2, 1)
	v := strategytest.OK(s.NewVariable(ctx, float32(1), strategy.VariableOptions{Name: "v"}))
	w := strategytest.OK(s.NewVariable(ctx, float32(5), strategy.VariableOptions{Name: "w"}))
	for _, c := range []struct {
		nest []any
		want []float32
	}{{[]any{v, v}, []float32{2, 2}}, {[]any{v, w}, []float32{2, 10}}, {[]any{w, w}, []float32{10, 10}},
		{[]any{w, v, w}, []float32{10, 2, 10}}} {
		sums := strategytest.OK(eager.Of(s).Reduce(ctx, strategy.Sum, c.nest)).([]any)
		for i, sum := range sums {
			assert.Equal(t, c.want[i], strategytest.OK(sum.(*strategy.Mirrored).Value(ctx)).Value(), "%v: leaf %d", c.want, i)
		}
	}
}

// One program reduces any number of values of any kinds. If a value cannot be reduced, none is
// reduced, no value is leaked, and the error names the value.
func TestValuesAreReducedTogetherOrNotAtAll(t *testing.T) {
	ctx := context.Background()
	s := strategytest.New(t, 2, 2)
	e := eager.Of(s)
	each := strategytest.OK(s.PerReplica(ctx, []any{float32(1), float32(3)}, logical.Annotation{}))
	rows := strategytest.OK(s.PerReplica(ctx, []any{[]float32{1, 2}, []float32{3, 4}}, logical.SplitInto(2)))
	whole := strategytest.OK(s.Mirror(ctx, []int64{4, 6}, logical.Annotation{}))
	v := strategytest.OK(s.NewVariable(ctx, []float32{1, 5}, strategy.VariableOptions{Name: "v"}))
	ragged := strategytest.OK(s.PerReplica(ctx, []any{[]float32{1}, []float32{2, 3}}, logical.Annotation{}))
	flags := strategytest.OK(s.PerReplica(ctx, []any{true, false}, logical.Annotation{}))
	all := e.WorkerDevices(ctx)
	reduce := func(op strategy.ReduceOp, values ...any) ([]any, error) {
		pairs := make([]eager.ReducePair, len(values))
		for i, x := range values {
			pairs[i] = eager.ReducePair{Value: x, To: eager.ToDevices(all...)}
		}
		return e.BatchReduceTo(ctx, op, pairs)
	}
	for op, want := range map[strategy.ReduceOp][]any{
		strategy.Mean: {float32(2), []float32{2, 3}, []int64{4, 6}, []float32{1, 5}, float32(7)},
		strategy.Sum:  {float32(4), []float32{4, 6}, []int64{8, 12}, []float32{2, 10}, float32(4)},
	} {
		last := any(float32(7)) // one value, which is its own mean
		if op == strategy.Sum {
			last = each
		}
		before := len(strategy.OwnPrograms(s))
		results, err := reduce(op, each, rows, whole, v, last)
		require.NoError(t, err)
		assert.Equal(t, before+1, len(strategy.OwnPrograms(s)), "%s: one program", op)
		for i, x := range results {
			if m, ok := x.(*strategy.Mirrored); ok {
				for r := range 2 {
					got, err := m.Local(ctx, r)
					require.NoError(t, err)
					assert.Equal(t, want[i], got.Value(), "%s: value %d on replica %d", op, i, r)
				}
				require.NoError(t, m.Close())
			} else {
				assert.Equal(t, want[i], x, "%s: value %d", op, i)
			}
		}
	}
	for text, values := range map[string][]any{
		"value 1: reduce: replicas have different shapes [[1] [2]]; give an axis": {each, ragged, rows},
		"value 2: ": {each, rows, flags},
		"value 0: ": {"no number", each},
	} {
		open := leaktest.OpenObjects()["buffer"]
		_, err := reduce(strategy.Sum, values...)
		require.Error(t, err, text)
		assert.ErrorContains(t, err, text)
		assert.NotEqual(t, errkind.Unknown, errkind.KindOf(err))
		assert.Equal(t, open, leaktest.OpenObjects()["buffer"], "%s: nothing is left", text)
	}
	_, err := reduce(strategy.Sum, ragged)
	require.Error(t, err)
	assert.NotContains(t, err.Error(), "value 0", "there is one")
}
