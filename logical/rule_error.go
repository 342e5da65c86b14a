package logical

import (
	"fmt"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/internal/plain"
)

// RuleError reports a rule that is invalid or cannot be applied.
type RuleError struct {
	// File is the file or built-in set that contains the rule, or "" if the rule was defined in Go.
	File string
	// Rule is the index of the rule, or -1 if the error concerns all rules. Text describes the
	// rule.
	Rule int
	Text string
	// Program is the name of the compiled program, or "" if there is none.
	Program string
	// Variable is the path of the variable that cannot be split, and Shape is its shape. Variable
	// is "" if the error concerns no variable.
	Variable string
	Shape    []int
	// Reason describes the problem, and Hint the correction.
	Reason, Hint string
	// Err is the cause, or nil.
	Err error
}

// Error returns a message with the file, the rule, the variable, the problem and the correction.
func (e *RuleError) Error() string {
	subject := "logical: rules"
	if e.File != "" {
		subject += " " + plain.EscapeLine(e.File)
	}
	if e.Rule >= 0 {
		subject += fmt.Sprintf(": rule %d", e.Rule)
		if e.Text != "" {
			subject += " (" + e.Text + ")"
		}
	}
	if e.Program != "" {
		subject += fmt.Sprintf(": program %q", e.Program)
	}
	if e.Variable != "" {
		subject += fmt.Sprintf(": variable %q of shape %v", e.Variable, e.Shape)
	}
	return errkind.Format(subject, e.Reason, e.Err, e.Hint)
}

// Unwrap returns the cause.
func (e *RuleError) Unwrap() error { return e.Err }

// Kind returns ValueError.
func (*RuleError) Kind() errkind.Kind { return errkind.ValueError }
