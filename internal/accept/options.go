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

// Options selects the devices and the tests of an acceptance run.
type Options struct {
	// Open opens the devices of this host. Messages that it logs become part of the report.
	Open func(ctx context.Context, logger *slog.Logger) (*system.System, error)
	// Accelerator is the type of the slice, such as "v5litepod-16". If it is empty, the cluster
	// resolver determines the type.
	Accelerator string
	// Quick reduces the sizes and the time limits of all parts.
	Quick bool
	// TimeLimit is the time limit of the run. 0 means 15 minutes, or 2 minutes with Quick. The part
	// that is running at the limit is canceled.
	TimeLimit time.Duration
	// Only lists the parts to run; the part "start" always runs. Skip lists parts to omit.
	Only, Skip []string
	// Store is a directory or URL for checkpoints that all hosts can access. If it is empty, a
	// single host uses a temporary directory.
	Store string
	// Kill is the index of a host whose process is killed at the end of the run, to test how the
	// other hosts report it. nil kills none. It must be equal on all hosts.
	Kill *int
	// KillSelf kills this process when Kill selects this host. nil means to send SIGKILL.
	KillSelf func()
	// Getenv returns the value of a variable in [Environment].
	Getenv func(string) string
	// OnOutcome is called when a part starts or ends on this host, and when the outcome of another
	// host is received. Calls do not overlap.
	OnOutcome func(Outcome)
	// Hooks inject faults in tests.
	Hooks TestHooks
}

// TestHooks contains functions that inject faults into an acceptance run. A nil hook has no effect.
type TestHooks struct {
	// BeforePart is called at the start of a part, in the goroutine and with the context of the part.
	BeforePart func(ctx context.Context, host int, part string) error
	// ChangeResult may change a result before it is compared with the expected result.
	ChangeResult func(host int, part, check string, answer []byte)
	// ChangeDevices may change the devices that the runtime describes.
	ChangeDevices func(host int, devices []Device) []Device
	// ChangeMeasurement returns the value to record for a measurement.
	ChangeMeasurement func(host int, part string, f Measurement) float64
	// GracePeriod is how long a part may continue after its time limit before it is abandoned. 0
	// means 5 seconds.
	GracePeriod time.Duration
	// TimeLimits overrides the time limits of parts by name.
	TimeLimits map[string]time.Duration
}

// Validate returns the error that [Run] returns for invalid options.
func (o Options) Validate() error {
	var names []string
	for _, p := range parts {
		names = append(names, p.Name)
	}
	unknown := slices.DeleteFunc(slices.Concat(o.Only, o.Skip), func(name string) bool {
		return slices.Contains(names,
			name)
	})
	switch {
	case o.Open == nil:
		return optionError("give a function that opens the devices", "Options.Open is nil")
	case o.TimeLimit < 0:
		return optionError("give a positive time", "a budget of %v", o.TimeLimit)
	case len(unknown) > 0:
		return optionError("the parts are "+strings.Join(names, ", "), "there is no part %q", unknown[0])
	case o.Kill != nil && *o.Kill < 0:
		return optionError("hosts count from 0", "there is no host %d to end", *o.Kill)
	case slices.Contains(o.Skip, startName):
		return optionError("all other parts need what it opens", "the part start cannot be left out")
	}
	return nil
}

func optionError(hint, reason string, args ...any) error {
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

func (o Options) timeLimit(p Part) time.Duration {
	if t, ok := o.Hooks.TimeLimits[p.Name]; ok {
		return t
	}
	if o.Quick {
		return p.QuickTimeLimit
	}
	return p.TimeLimit
}

// TotalTimeLimit returns the time limit of the run, or the default if no limit is set.
func (o Options) TotalTimeLimit() time.Duration {
	switch {
	case o.TimeLimit > 0:
		return o.TimeLimit
	case o.Quick:
		return 2 * time.Minute
	}
	return 15 * time.Minute
}
