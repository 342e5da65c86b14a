package replay

import (
	"fmt"
	"strings"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/internal/command"
)

// Error reports devices that do not hold what they should.
type Error struct {
	// Step is the step that was replayed.
	Step int64
	// Devices are those that differ, by their names, and All says that all do: what was wrong has
	// entered a sum over the replicas.
	Devices []string
	All     bool
	// Variables are those in which they differ, as far as this process can tell.
	Variables []string
	// Reason says what they differ from.
	Reason string
}

// Error names the devices and the variables.
func (e *Error) Error() string {
	who := strings.Join(short(e.Devices), ", ")
	if e.All {
		who = fmt.Sprintf("all %d devices", len(e.Devices))
	}
	reason := who + ": " + e.Reason
	if len(e.Variables) > 0 {
		reason += ", in " + strings.Join(short(e.Variables), ", ")
	}
	return errkind.Text(fmt.Sprintf("replay: step %d", e.Step), reason, nil,
		"the state is not saved: start again from the last checkpoint, and without the device if it differs again")
}

// short bounds a list in a text.
func short(all []string) []string {
	const most = 6
	if len(all) <= most {
		return all
	}
	return append(append([]string{}, all[:most]...), fmt.Sprintf("and %d more", len(all)-most))
}

// Kind returns DataLossError.
func (*Error) Kind() errkind.Kind { return errkind.DataLossError }

// ExitCode returns 69, that of watchdog.ExitCode: whoever starts the run again starts all hosts, from the
// last checkpoint, and on new machines if it happens twice.
func (*Error) ExitCode() int { return command.Unavailable }
