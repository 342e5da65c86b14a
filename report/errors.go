package report

import (
	"fmt"

	"github.com/tpustrategy/tpustrategy/errkind"
)

// noReport returns an error for data that is not a report. It matches ErrFormat.
func noReport(cause error, format string, args ...any) error {
	return &errkind.Fault{Match: ErrFormat, Reason: fmt.Sprintf(format, args...), Err: cause,
		Hint: "give the JSON form of one Report"}
}

// fromPlugin wraps an error of the plugin with the requested operation.
func fromPlugin(op string, err error) error { return &errkind.Fault{Op: "report: " + op, Err: err} }
