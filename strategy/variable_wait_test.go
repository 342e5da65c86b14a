package strategy_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/internal/test/strategytest"
	"github.com/tpustrategy/tpustrategy/strategy"
)

// TestAWaitForAVariableAllocatesNothing waits with a context that can be canceled.
func TestAWaitForAVariableAllocatesNothing(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	s := strategytest.New(t, 2, 1, strategy.Options{})
	v, err := s.NewVariable(ctx, float32(1), strategy.VariableOptions{})
	require.NoError(t, err)
	require.NoError(t, v.Ready(ctx))
	assert.Zero(t, testing.AllocsPerRun(100, func() {
		if err := v.Ready(ctx); err != nil {
			t.Fatal(err)
		}
	}))
}
