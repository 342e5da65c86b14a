package report

import (
	"fmt"

	"github.com/tpustrategy/tpustrategy/errkind"
)

// formatError returns an error for data that is not a report. It matches ErrFormat.
func formatError(cause error, format string, args ...any) error {
	return &errkind.Fault{Match: ErrFormat, Reason: fmt.Sprintf(format, args...), Err: cause,
		Hint: "give the JSON form of one Report"}
}

// pluginError wraps an error of the plugin with the requested operation.
func pluginError(op string, err error) error { return &errkind.Fault{Op: "report: " + op, Err: err} }
