package text

import (
	"fmt"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/input"
)

func valueError(op, hint, format string, args ...any) error {
	return &errkind.Fault{Op: "text: " + op, Reason: fmt.Sprintf(format, args...), Hint: hint, Class: errkind.ValueError}
}

func wrapError(op, subject string, err error) error {
	return &errkind.Fault{Op: "text: " + op, Subject: subject, Err: err}
}

// stateError returns an error for a position of another dataset. It matches input.ErrState.
func stateError(format string, args ...any) error {
	return &errkind.Fault{Match: input.ErrState, Reason: fmt.Sprintf(format, args...),
		Hint: "open the windows that gave it, over the same texts, tokenizer and seed, or begin at the zero State"}
}
