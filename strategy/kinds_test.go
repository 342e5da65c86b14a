package strategy_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/internal/engine/fault"
	"github.com/tpustrategy/tpustrategy/strategy"
)

func TestTheKindOfAnErrorIsThatOfTheFirstThatHasOne(t *testing.T) {
	wrong := &strategy.Error{Match: strategy.ErrContext, Op: "strategy: reduce", Reason: "called in a replica's code",
		Hint: "call it before or after"}
	mixed := fault.OtherStrategy("reduce", `variable "w"`)
	value := &strategy.Error{Op: "strategy: read", Reason: "replica 3 of 2", Hint: "count from 0",
		Class: errkind.ValueError}
	assert.EqualError(t, wrong, "strategy: reduce: called in a replica's code; call it before or after")
	assert.ErrorIs(t, mixed, strategy.ErrOtherStrategy)
	assert.EqualError(t, mixed,
		`strategy: mixing strategies: reduce: variable "w" belongs to another strategy; copy values through the host`)
	for name, c := range map[string]struct {
		err  error
		want errkind.Kind
	}{
		"nothing":                      {nil, errkind.Unknown},
		"an error of somebody else":    {errors.New("disk full"), errkind.Unknown},
		"a wrong context":              {wrong, errkind.RuntimeError},
		"mixed strategies":             {mixed, errkind.RuntimeError},
		"a value":                      {value, errkind.ValueError},
		"wrapped":                      {fmt.Errorf("epoch 3: %w", value), errkind.ValueError},
		"joined after somebody else's": {errors.Join(errors.New("disk full"), value, wrong), errkind.ValueError},
		"the first of two":             {errors.Join(wrong, value), errkind.RuntimeError},
		"of the cause":                 {&strategy.Error{Op: "strategy: reduce", Err: value}, errkind.ValueError},
		"not of the cause": {&strategy.Error{Op: "strategy: reduce", Err: value, Class: errkind.TypeError},
			errkind.TypeError},
		"a step that panicked":        {&strategy.TraceError{Function: "f", Err: value}, errkind.ValueError},
		"an argument without a cause": {&strategy.ArgumentError{Function: "f"}, errkind.ValueError},
		"an argument with one":        {&strategy.ArgumentError{Function: "f", Err: wrong}, errkind.RuntimeError},
		"closed":                      {fmt.Errorf("epoch 3: %w", strategy.ErrClosed), errkind.RuntimeError},
		"an option":                   {&strategy.OptionError{Option: "Replicas"}, errkind.ValueError},
	} {
		assert.Equal(t, c.want, errkind.KindOf(c.err), name)
	}
}
