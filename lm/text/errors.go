package text

import (
	"fmt"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/input"
)

// wrong returns a ValueError for an invalid argument of op.
func wrong(op, hint, format string, args ...any) error {
	return &errkind.Fault{Op: "text: " + op, Reason: fmt.Sprintf(format, args...), Hint: hint, Class: errkind.ValueError}
}

// within adds the operation and the subject to an error.
func within(op, subject string, err error) error {
	return &errkind.Fault{Op: "text: " + op, Subject: subject, Err: err}
}

// misfit returns an error for a position of another dataset. It matches input.ErrState.
func misfit(format string, args ...any) error {
	return &errkind.Fault{Match: input.ErrState, Reason: fmt.Sprintf(format, args...),
		Hint: "open the windows that gave it, over the same texts, tokenizer and seed, or begin at the zero State"}
}
