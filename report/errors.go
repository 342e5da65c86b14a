package report

import (
	"errors"
	"fmt"

	"github.com/tpustrategy/tpustrategy/errkind"
)

// malformed returns an error for an optimized program with an invalid format. It matches
// ErrProgram.
func malformed(cause error, format string, args ...any) error {
	return &errkind.Fault{Match: ErrProgram, Reason: fmt.Sprintf(format, args...), Err: cause,
		Hint: "compile with another version of the plugin"}
}

// noReport returns an error for data that is not a report. It matches ErrFormat.
func noReport(cause error, format string, args ...any) error {
	return &errkind.Fault{Match: ErrFormat, Reason: fmt.Sprintf(format, args...), Err: cause,
		Hint: "give the JSON form of one Report"}
}

// fromPlugin wraps an error of the plugin with the requested operation.
func fromPlugin(op string, err error) error { return &errkind.Fault{Op: "report: " + op, Err: err} }

// notTPU returns an error for a slice without predictions. It matches errors.ErrUnsupported.
func notTPU(target string) error {
	return &errkind.Fault{Op: "report: predict", Subject: fmt.Sprintf("%q", target), Match: errors.ErrUnsupported,
		Reason: "it is no slice of TPUs whose chips are known", Hint: "name one such as v5e:4x4"}
}
