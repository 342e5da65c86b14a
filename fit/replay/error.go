package replay

import (
	"fmt"
	"strings"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/internal/command"
)

// Error reports devices whose values differ from the values of other devices or of another run.
type Error struct {
	// Step is the replayed step.
	Step int64
	// Devices are the names of the differing devices. AllDevices reports that all devices differ,
	// because the wrong value was summed over the replicas.
	Devices    []string
	AllDevices bool
	// Variables are the differing variables, as far as this process knows them.
	Variables []string
	// Reason describes the comparison that failed.
	Reason string
}

func (e *Error) Error() string {
	who := strings.Join(truncateList(e.Devices), ", ")
	if e.AllDevices {
		who = fmt.Sprintf("all %d devices", len(e.Devices))
	}
	reason := who + ": " + e.Reason
	if len(e.Variables) > 0 {
		reason += ", in " + strings.Join(truncateList(e.Variables), ", ")
	}
	return errkind.Format(fmt.Sprintf("replay: step %d", e.Step), reason, nil,
		"the state is not saved: restart from the last checkpoint, without the device if it differs again")
}

// truncateList returns at most six names for an error text. It replaces the remaining names by
// their number.
func truncateList(names []string) []string {
	const limit = 6
	if len(names) <= limit {
		return names
	}
	return append(append([]string{}, names[:limit]...), fmt.Sprintf("and %d more", len(names)-limit))
}

func (*Error) Kind() errkind.Kind { return errkind.DataLossError }

// ExitCode returns 69, like watchdog.ExitCode. The supervisor must restart all hosts from the last
// checkpoint. If the error recurs, it must use other machines.
func (*Error) ExitCode() int { return command.Unavailable }
