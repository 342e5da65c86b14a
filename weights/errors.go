package weights

import (
	"fmt"

	"github.com/tpustrategy/tpustrategy/errkind"
)

// FileError reports a file of weights that cannot be read, or that lies.
type FileError struct {
	// File is the file's name, and Tensor the tensor's, which may be empty.
	File, Tensor string
	// Reason says what is wrong with it.
	Reason string
	// Hint says what to do; it may be empty.
	Hint string
	// Class is the kind; DataLossError where it is not set.
	Class errkind.Kind
	// Err is the cause, which may be nil.
	Err error
}

// Error returns "weights: file "name": tensor "name": reason: cause; hint".
func (e *FileError) Error() string {
	subject := fmt.Sprintf("weights: file %q", e.File)
	if e.Tensor != "" {
		subject += fmt.Sprintf(": tensor %q", e.Tensor)
	}
	return errkind.Text(subject, e.Reason, e.Err, e.Hint)
}

// Kind returns the kind of the error.
func (e *FileError) Kind() errkind.Kind {
	if e.Class != errkind.Unknown {
		return e.Class
	}
	return errkind.Or(e.Err, errkind.DataLossError)
}

// Unwrap returns the cause.
func (e *FileError) Unwrap() error { return e.Err }

// RuleError reports a rule that cannot be followed, whatever the file has.
type RuleError struct {
	// Rule is the rule's number, from 0, and Pattern its pattern.
	Rule    int
	Pattern string
	// Reason says what is wrong with it, and Hint what to write instead.
	Reason, Hint string
	// Err is the cause, which may be nil.
	Err error
}

// Error returns "weights: rule 3 (pattern): reason: cause; hint".
func (e *RuleError) Error() string {
	return errkind.Text(fmt.Sprintf("weights: rule %d (%s)", e.Rule, e.Pattern), e.Reason, e.Err, e.Hint)
}

// Kind returns ValueError.
func (*RuleError) Kind() errkind.Kind { return errkind.ValueError }

// Unwrap returns the cause.
func (e *RuleError) Unwrap() error { return e.Err }

// Problem says in which way files and variables do not fit.
type Problem int

const (
	// Missing is a variable, or a part of one, that no tensor fills.
	Missing Problem = iota
	// LeftOver is a tensor, or a part of one, that no rule uses.
	LeftOver
	// Mismatch is a tensor whose shape does not fit its variable after the rule's steps.
	Mismatch
	// Twice is a part of a variable that two tensors fill, or a tensor that two rules use.
	Twice
	// Unmatched is a rule that is to match and matches nothing.
	Unmatched
	// NoForm is a tensor whose dtype cannot become that of its variable.
	NoForm
)

var problems = [...]string{"missing", "left over", "mismatch", "twice", "unmatched", "dtype"}

// String returns a word or two.
func (p Problem) String() string {
	if p < 0 || int(p) >= len(problems) {
		return fmt.Sprintf("Problem(%d)", int(p))
	}
	return problems[p]
}

// Fault is one thing that does not fit.
type Fault struct {
	Problem Problem
	// Tensor and Variable are the names, of which one may be empty.
	Tensor, Variable string
	// Detail says what was found and what was expected, with both shapes.
	Detail string
	// Hint says what to write.
	Hint string
}

// String is the fault as one line.
func (f Fault) String() string {
	subject := f.Problem.String()
	if f.Variable != "" {
		subject += fmt.Sprintf(": variable %q", f.Variable)
	}
	if f.Tensor != "" {
		subject += fmt.Sprintf(": tensor %q", f.Tensor)
	}
	return errkind.Text(subject, f.Detail, nil, f.Hint)
}

// PlanError lists all that does not fit between the tensors of files, the rules and the variables
// of a model.
type PlanError struct {
	// Faults are in the order of the variables, then of the tensors.
	Faults []Fault
}

// shownFaults bounds the lines of a PlanError's text.
const shownFaults = 20

// Error lists the faults, the first twenty.
func (e *PlanError) Error() string {
	text := fmt.Sprintf("weights: the files do not fit the model in %d ways", len(e.Faults))
	if len(e.Faults) == 1 {
		text = "weights: the files do not fit the model"
	}
	for i, f := range e.Faults {
		if i == shownFaults {
			return text + fmt.Sprintf("\n... and %d more", len(e.Faults)-i)
		}
		text += "\n" + f.String()
	}
	return text
}

// Kind returns ValueError.
func (*PlanError) Kind() errkind.Kind { return errkind.ValueError }
