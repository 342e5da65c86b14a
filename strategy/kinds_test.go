package strategy_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/strategy/internal/fault"
)

func TestTheKindOfAnErrorIsThatOfTheFirstThatHasOne(t *testing.T) {
	wrong := &strategy.Error{Match: strategy.ErrContext, Op: "strategy: reduce", Reason: "called in a replica's code", Hint: "call it before or after"}
	mixed := fault.OtherStrategy("reduce", `variable "w"`)
	value := &strategy.Error{Op: "strategy: read", Reason: "replica 3 of 2", Hint: "count from 0", Class: strategy.ValueError}
	assert.EqualError(t, wrong, "strategy: reduce: called in a replica's code; call it before or after")
	assert.ErrorIs(t, mixed, strategy.ErrOtherStrategy)
	assert.EqualError(t, mixed, `strategy: mixing strategies: reduce: variable "w" belongs to another strategy; copy values through the host`)
	for name, c := range map[string]struct {
		err  error
		want strategy.Kind
	}{
		"nothing":                      {nil, strategy.KindUnknown},
		"an error of somebody else":    {errors.New("disk full"), strategy.KindUnknown},
		"a wrong context":              {wrong, strategy.RuntimeError},
		"mixed strategies":             {mixed, strategy.RuntimeError},
		"a value":                      {value, strategy.ValueError},
		"wrapped":                      {fmt.Errorf("epoch 3: %w", value), strategy.ValueError},
		"joined after somebody else's": {errors.Join(errors.New("disk full"), value, wrong), strategy.ValueError},
		"the first of two":             {errors.Join(wrong, value), strategy.RuntimeError},
		"of the cause":                 {&strategy.Error{Op: "strategy: reduce", Err: value}, strategy.ValueError},
		"not of the cause":             {&strategy.Error{Op: "strategy: reduce", Err: value, Class: strategy.TypeError}, strategy.TypeError},
		"a step that panicked":         {&strategy.TraceError{Function: "f", Err: value}, strategy.ValueError},
		"an argument without a cause":  {&strategy.ArgumentError{Function: "f"}, strategy.ValueError},
		"an argument with one":         {&strategy.ArgumentError{Function: "f", Err: wrong}, strategy.RuntimeError},
		"closed":                       {fmt.Errorf("epoch 3: %w", strategy.ErrClosed), strategy.RuntimeError},
		"an option":                    {&strategy.OptionError{Option: "Replicas"}, strategy.ValueError},
	} {
		assert.Equal(t, c.want, strategy.KindOf(c.err), name)
	}
}
