package weights

import (
	"fmt"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/internal/enum"
)

// fileError adds a file name to the error f, and a tensor name unless it is empty. The kind is
// DataLossError unless f or its cause has another kind.
func fileError(file, tensor string, f errkind.Fault) error {
	f.Op = fmt.Sprintf("weights: file %q", file)
	if tensor != "" {
		f.Op += fmt.Sprintf(": tensor %q", tensor)
	}
	if f.Class == errkind.Unknown {
		f.Class = errkind.KindOr(f.Err, errkind.DataLossError)
	}
	return &f
}

func ruleError(rule int, pattern, reason, hint string, cause error) error {
	return &errkind.Fault{Op: fmt.Sprintf("weights: rule %d (%s)", rule, pattern), Reason: reason, Hint: hint, Err: cause,
		Class: errkind.ValueError}
}

// MismatchKind is the kind of mismatch between files, rules and variables.
type MismatchKind int

const (
	// Missing is a variable, or a part of a variable, that no tensor fills.
	Missing MismatchKind = iota
	// Unused is a tensor, or a part of a tensor, that no rule uses.
	Unused
	// ShapeMismatch is a tensor whose shape does not fit its variable after the rule's steps.
	ShapeMismatch
	// Duplicate is a part of a variable that two tensors fill, or a tensor that two rules use.
	Duplicate
	// UnmatchedRule is a rule that matches no tensor and is not optional.
	UnmatchedRule
	// DTypeMismatch is a tensor whose dtype cannot be converted to the variable's dtype.
	DTypeMismatch
)

// String returns a short name.
func (p MismatchKind) String() string {
	return enum.Name(p, "missing", "left over", "mismatch", "twice", "unmatched", "dtype")
}

// Mismatch describes a disagreement between files, rules and variables.
type Mismatch struct {
	Kind MismatchKind
	// Tensor and Variable are the names of the tensor and the variable. One of them may be empty.
	Tensor, Variable string
	// Detail describes the mismatch, with both shapes.
	Detail string
	// Hint suggests a correction.
	Hint string
}

// String returns the mismatch in one line.
func (m Mismatch) String() string {
	subject := m.Kind.String()
	if m.Variable != "" {
		subject += fmt.Sprintf(": variable %q", m.Variable)
	}
	if m.Tensor != "" {
		subject += fmt.Sprintf(": tensor %q", m.Tensor)
	}
	return errkind.Format(subject, m.Detail, nil, m.Hint)
}

// PlanError lists all mismatches between the tensors of files, the rules and the variables of a model.
type PlanError struct {
	// Mismatches are the mismatches of the variables, followed by the mismatches of the tensors.
	Mismatches []Mismatch
}

// maxShownMismatches limits the number of mismatches in the text of a PlanError.
const maxShownMismatches = 20

// Error returns a text with the first twenty mismatches.
func (e *PlanError) Error() string {
	text := fmt.Sprintf("weights: the files do not fit the model in %d ways", len(e.Mismatches))
	if len(e.Mismatches) == 1 {
		text = "weights: the files do not fit the model"
	}
	for i, m := range e.Mismatches {
		if i == maxShownMismatches {
			return text + fmt.Sprintf("\n... and %d more", len(e.Mismatches)-i)
		}
		text += "\n" + m.String()
	}
	return text
}

// Kind returns ValueError.
func (*PlanError) Kind() errkind.Kind { return errkind.ValueError }
