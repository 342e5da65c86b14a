package strategy_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/strategy"
)

func FuzzParseReduceOp(f *testing.F) {
	for _, name := range []string{"sum", "MEAN", "Mean", "max", "", "SUM "} {
		f.Add(name)
	}
	f.Fuzz(func(t *testing.T, name string) {
		op, err := strategy.ParseReduceOp(name)
		if err != nil {
			require.Equal(t, strategy.ValueError, strategy.KindOf(err))
			return
		}
		require.Equal(t, strings.ToUpper(name), op.String())
	})
}

func TestStateShardingsHaveNames(t *testing.T) {
	for name, want := range map[string]strategy.StateSharding{
		"none": strategy.ShardNothing, "optimizer": strategy.ShardOptimizer, "gradients": strategy.ShardGradients, "parameters": strategy.ShardParameters,
	} {
		got, err := strategy.ParseStateSharding(name)
		require.NoError(t, err)
		assert.Equal(t, want, got, name)
	}
	_, err := strategy.ParseStateSharding("zero3")
	assert.Equal(t, strategy.ValueError, strategy.KindOf(err))
	assert.ErrorContains(t, err, `"zero3" is none; write "none", "optimizer", "gradients" or "parameters"`)
}
