package accept

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/tpu/system"
)

// Options select the parts of a run and the devices.
type Options struct {
	// Open opens the devices of this host. The report contains the messages of the logger.
	Open func(ctx context.Context, logger *slog.Logger) (*system.System, error)
	// Accelerator is the type of the slice, such as "v5litepod-16". "" means the type that the
	// cluster resolver returns.
	Accelerator string
	// Quick reduces the data and the time limits of all parts: the run has 2 minutes instead of 15.
	Quick bool
	// TimeLimit is the time limit of the run. 0 means 15 minutes, or 2 with Quick. At the limit the
	// running part is canceled.
	TimeLimit time.Duration
	// Only lists the parts to run in addition to start. Skip lists the parts to omit.
	Only, Skip []string
	// Store is a directory or URL for checkpoints, which all hosts share. "" means a temporary
	// directory if there is one host.
	Store string
	// Kill is the index of the host whose process is killed at the end of the run, to record the
	// errors of the other hosts. nil kills none. It must be equal on all hosts.
	Kill *int
	// KillSelf kills the process of this host if Kill selects it. nil sends SIGKILL to this
	// process.
	KillSelf func()
	// Getenv reads the environment. Only the variables in [Environment] are read.
	Getenv func(string) string
	// OnOutcome is called with each outcome: when a part of this host starts and ends, and when the
	// outcomes of other hosts are received. Calls do not overlap.
	OnOutcome func(Outcome)
	// Hooks inject faults in tests.
	Hooks TestHooks
}

// TestHooks inject faults into a run. A nil hook changes nothing.
type TestHooks struct {
	// BeforePart is called at the start of a part, in the goroutine and with the context of the
	// part.
	BeforePart func(ctx context.Context, host int, part string) error
	// ChangeResult may change a result before it is compared with the expected result.
	ChangeResult func(host int, part, check string, answer []byte)
	// ChangeDevices may change the devices that the runtime describes.
	ChangeDevices func(host int, devices []Device) []Device
	// ChangeMeasurement returns the value to record for a measurement.
	ChangeMeasurement func(host int, part string, f Measurement) float64
	// GracePeriod is the time that a part has to return after its time limit. 0 means 5 seconds.
	GracePeriod time.Duration
	// TimeLimits replace the time limits of parts.
	TimeLimits map[string]time.Duration
}

// Validate returns an error for invalid options, like [Run].
func (o Options) Validate() error {
	var names []string
	for _, p := range parts {
		names = append(names, p.Name)
	}
	unknown := slices.DeleteFunc(slices.Concat(o.Only, o.Skip), func(name string) bool { return slices.Contains(names, name) })
	switch {
	case o.Open == nil:
		return invalid("give a function that opens the devices", "Options.Open is nil")
	case o.TimeLimit < 0:
		return invalid("give a positive time", "a budget of %v", o.TimeLimit)
	case len(unknown) > 0:
		return invalid("the parts are "+strings.Join(names, ", "), "there is no part %q", unknown[0])
	case o.Kill != nil && *o.Kill < 0:
		return invalid("hosts count from 0", "there is no host %d to end", *o.Kill)
	case slices.Contains(o.Skip, startName):
		return invalid("all other parts need what it opens", "the part start cannot be left out")
	}
	return nil
}

func invalid(hint, reason string, args ...any) error {
	return &errkind.Fault{Op: "accept", Reason: fmt.Sprintf(reason, args...), Hint: hint, Class: errkind.ValueError}
}

func (o Options) includes(name string) bool {
	switch name {
	case startName:
		return true
	case killName:
		return o.Kill != nil
	}
	return (len(o.Only) == 0 || slices.Contains(o.Only, name)) && !slices.Contains(o.Skip, name)
}

// timeLimit returns the time limit of a part.
func (o Options) timeLimit(p Part) time.Duration {
	if t, ok := o.Hooks.TimeLimits[p.Name]; ok {
		return t
	}
	if o.Quick {
		return p.QuickTimeLimit
	}
	return p.TimeLimit
}

// TotalTimeLimit returns the time limit of the run.
func (o Options) TotalTimeLimit() time.Duration {
	switch {
	case o.TimeLimit > 0:
		return o.TimeLimit
	case o.Quick:
		return 2 * time.Minute
	}
	return 15 * time.Minute
}
