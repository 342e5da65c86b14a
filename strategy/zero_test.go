package strategy_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/tpu/system"
)

// What was not opened gives no strategy, and a zero strategy does nothing.
func TestZeroValuesGiveNoStrategy(t *testing.T) {
	_, err := strategy.New(&system.System{}, strategy.Options{})
	require.Error(t, err)
	_, err = strategy.NewAheadOfTime(&system.Slice{}, strategy.Options{})
	require.Error(t, err)
	var s strategy.TPUStrategy
	assert.NotPanics(t, func() {
		_, err := s.Function(double, strategy.FunctionOptions{}).Run(t.Context(), float32(1))
		assert.Error(t, err)
		assert.NoError(t, s.Shutdown(t.Context()))
	})
}
