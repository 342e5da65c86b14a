package errkind_test

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/strategy/checkpoint"
)

func TestErrorTexts(t *testing.T) {
	cause := errors.New("cause")
	for want, err := range map[string]error{
		"strategy: reduce: no value: cause; give one": &strategy.Error{Op: "strategy: reduce",
			Reason: "no value", Err: cause, Hint: "give one"},
		"strategy: f: argument 2: no value: cause; give one": &strategy.ArgumentError{Function: "f", Argument: 2,
			Reason: "no value", Err: cause, Hint: "give one"},
		"strategy: f: args[0].X: no value: cause; give one": &strategy.ArgumentError{Function: "f",
			Path: "args[0].X", Reason: "no value", Err: cause, Hint: "give one"},
		"strategy: option Replicas: too many: cause": &strategy.OptionError{Option: "Replicas",
			Reason: "too many", Err: cause},
		`checkpoint: variable "/w": no value: cause; give one`: &errkind.Fault{Match: checkpoint.ErrVariable,
			Subject: `"/w"`, Reason: "no value", Err: cause, Hint: "give one"},
	} {
		assert.EqualError(t, err, want)
		assert.ErrorIs(t, err, cause)
	}
}
