package logical

import (
	"fmt"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/internal/plain"
)

// RuleError reports a rule that cannot be followed.
type RuleError struct {
	// File is the file or the built-in set that has the rule; empty if it came from the program.
	File string
	// Rule is the index of the rule, or -1 if the error is about all of them. Text is the rule.
	Rule int
	Text string
	// Program is the program that was compiled, if there was one.
	Program string
	// Variable is the path of the variable that cannot be split, and Shape its shape; empty if the
	// error is about no variable.
	Variable string
	Shape    []int
	// Reason says what is wrong, and Hint what to write instead.
	Reason, Hint string
	// Err is the cause, if there is one.
	Err error
}

// Error returns the file, the rule, the variable, what is wrong and what to do.
func (e *RuleError) Error() string {
	what := "logical: rules"
	if e.File != "" {
		what += " " + plain.Line(e.File)
	}
	if e.Rule >= 0 {
		what += fmt.Sprintf(": rule %d", e.Rule)
		if e.Text != "" {
			what += " (" + e.Text + ")"
		}
	}
	if e.Program != "" {
		what += fmt.Sprintf(": program %q", e.Program)
	}
	if e.Variable != "" {
		what += fmt.Sprintf(": variable %q of shape %v", e.Variable, e.Shape)
	}
	return errkind.Text(what, e.Reason, e.Err, e.Hint)
}

// Unwrap returns the cause.
func (e *RuleError) Unwrap() error { return e.Err }

// Kind returns ValueError.
func (*RuleError) Kind() errkind.Kind { return errkind.ValueError }
