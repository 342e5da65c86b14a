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

// Options say what to run, and on what.
type Options struct {
	// Open opens the devices of this host. What the logger is told becomes part of the report.
	Open func(ctx context.Context, logger *slog.Logger) (*system.System, error)
	// Accelerator is the type of the slice, such as "v5litepod-16"; "" takes what the cluster says.
	Accelerator string
	// Quick runs the same parts with less data and shorter times: 2 minutes in all instead of 15.
	Quick bool
	// TimeLimit is the time of the whole run; 0 is 15 minutes, or 2. The part under way is cut then.
	TimeLimit time.Duration
	// Only names the parts to run, beside start, and Skip those to leave out.
	Only, Skip []string
	// Store is a directory for checkpoints, which all hosts share. "" is a temporary one where there
	// is one host.
	Store string
	// Kill is the number of a host whose process is ended at the end of the run, to see what the others
	// are told; nil ends none. All hosts have the same.
	Kill *int
	// KillSelf ends this host's process, if Kill names it; nil is a SIGKILL of this process to itself.
	KillSelf func()
	// Getenv reads the environment; only variables of [Environment] are read.
	Getenv func(string) string
	// OnOutcome is called with each outcome: those of this host as a part begins and ends, those of the
	// others as they are exchanged. Calls come one after another.
	OnOutcome func(Outcome)
	// Hooks are where tests put faults.
	Hooks TestHooks
}

// TestHooks are places at which a run can be made to fail, to see that it says so. Nil changes nothing.
type TestHooks struct {
	// BeforePart is called as a part begins, in its goroutine and with its context.
	BeforePart func(ctx context.Context, host int, part string) error
	// ChangeResult may change an answer before it is held against the right one.
	ChangeResult func(host int, part, check string, answer []byte)
	// ChangeDevices may change the devices as the runtime describes them.
	ChangeDevices func(host int, devices []Device) []Device
	// ChangeMeasurement returns the value to record for a figure.
	ChangeMeasurement func(host int, part string, f Measurement) float64
	// GracePeriod is how long a part may take to end after its time; 0 is 5 seconds.
	GracePeriod time.Duration
	// TimeLimits are budgets of parts, in place of the usual ones.
	TimeLimits map[string]time.Duration
}

// Validate refuses options that cannot be run, as [Run] does.
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

// includes says whether a part is to be run.
func (o Options) includes(name string) bool {
	switch name {
	case startName:
		return true
	case killName:
		return o.Kill != nil
	}
	return (len(o.Only) == 0 || slices.Contains(o.Only, name)) && !slices.Contains(o.Skip, name)
}

// timeLimit is the time of a part.
func (o Options) timeLimit(p Part) time.Duration {
	if t, ok := o.Hooks.TimeLimits[p.Name]; ok {
		return t
	}
	if o.Quick {
		return p.QuickTimeLimit
	}
	return p.TimeLimit
}

// TotalTimeLimit returns the time of the whole run.
func (o Options) TotalTimeLimit() time.Duration {
	switch {
	case o.TimeLimit > 0:
		return o.TimeLimit
	case o.Quick:
		return 2 * time.Minute
	}
	return 15 * time.Minute
}
