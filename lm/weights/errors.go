package weights

import (
	"fmt"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/internal/enum"
)

// inFile completes the fault of a file of weights that cannot be read, or that lies, and of the tensor
// that is named: a DataLossError where neither the fault nor its cause says more.
func inFile(file, tensor string, f errkind.Fault) error {
	f.Op = fmt.Sprintf("weights: file %q", file)
	if tensor != "" {
		f.Op += fmt.Sprintf(": tensor %q", tensor)
	}
	if f.Class == errkind.Unknown {
		f.Class = errkind.Or(f.Err, errkind.DataLossError)
	}
	return &f
}

// inRule is the error of a rule that cannot be followed, whatever the file has.
func inRule(rule int, pattern, reason, hint string, cause error) error {
	return &errkind.Fault{Op: fmt.Sprintf("weights: rule %d (%s)", rule, pattern), Reason: reason, Hint: hint, Err: cause, Class: errkind.ValueError}
}

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

// String returns a word or two.
func (p Problem) String() string {
	return enum.Name(p, "missing", "left over", "mismatch", "twice", "unmatched", "dtype")
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
