package strategy_test

import (
	"context"
	"reflect"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/internal/test/strategytest"
	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/strategy/eager"
)

// Two functions are the same object if they captured the same variables, not if they have the same
// code.
func TestClosuresOfOneTextAreTwoObjects(t *testing.T) {
	s := strategytest.New(t, 2, 1)
	var numbers []func() int
	for n := range 3 {
		numbers = append(numbers, func() int { return n })
	}
	one, two := numbers[1], numbers[2]
	grouped, err := eager.Of(s).Regroup(context.Background(), []any{[]any{one, one}, []any{one, two}})
	require.NoError(t, err)
	list := grouped.([]any)
	assert.Equal(t, 1, list[0].(func() int)())
	assert.Equal(t, 2, list[1].(*strategy.Objects).At(1).(func() int)())
	assert.Equal(t, reflect.ValueOf(one).Pointer(), reflect.ValueOf(two).Pointer(), "which have one text")
}
