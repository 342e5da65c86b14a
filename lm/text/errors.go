package text

import (
	"fmt"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/input"
)

// wrong is the error of a value that op cannot take: what is wrong with it, and what to do.
func wrong(op, hint, format string, args ...any) error {
	return &errkind.Fault{Op: "text: " + op, Reason: fmt.Sprintf(format, args...), Hint: hint, Class: errkind.ValueError}
}

// within puts the operation, and what it was about, before an error from further inside.
func within(op, subject string, err error) error {
	return &errkind.Fault{Op: "text: " + op, Subject: subject, Err: err}
}

// misfit is the error of a position that these windows did not give. It matches input.ErrState.
func misfit(format string, args ...any) error {
	return &errkind.Fault{Match: input.ErrState, Reason: fmt.Sprintf(format, args...),
		Hint: "open the windows that gave it, over the same texts, tokenizer and seed, or begin at the zero State"}
}
