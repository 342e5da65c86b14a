package watchdog

import (
	"cmp"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/tpustrategy/tpustrategy/errkind"
)

// Options configures a watchdog. The zero value watches a single process and can only cancel its
// context.
type Options struct {
	// Host is the number of this host, from 0, and Hosts is the number of hosts; 0 means 1.
	Host, Hosts int
	// Name is the host's name in reports; empty means os.Hostname.
	Name string
	// Run identifies this attempt of the job. It must be the same on all hosts, and different after
	// each restart. Records of another run are ignored.
	Run string
	// Dir is the folder that all hosts share, or the URL of a store, for the status records; see
	// [OpenRecordStore]. If Dir is empty, a host only watches itself.
	Dir string
	// RecordStore is an open store that replaces Dir. The caller remains its owner.
	RecordStore *RecordStore

	// StepTimeout limits each wait of a step: for its input, its launch, its result and an
	// exchange. 0 means four times the longest recent duration, and at least MinTimeout.
	StepTimeout time.Duration
	// MinTimeout is the minimum of all timeouts; 0 means 5 seconds.
	MinTimeout time.Duration
	// FirstTimeout limits a compilation and the first occurrence of an activity in this run, such
	// as the first batch, evaluation or save; 0 means 30 minutes.
	FirstTimeout time.Duration
	// CancelDelay is the time between the first report that the run cannot continue and the end of
	// the run. If nothing changes in that time, the context of [Watchdog.Context] is canceled. 0
	// means one minute.
	CancelDelay time.Duration
	// Exit, such as os.Exit, is called with [ExitCode] if canceling the context does not end the
	// wait: the watchdog was not closed within 10 seconds, or within CancelDelay if that is
	// shorter. If Exit is nil, the watchdog never ends the process.
	Exit func(code int)

	// OnReport is called with each report by a goroutine of the watchdog, one report at a time.
	OnReport func(Report)
	// Logger receives the reports; nil discards them.
	Logger *slog.Logger

	wallClock  func() time.Time     // wall clock of the host
	sinceStart func() time.Duration // monotonic time since the start
}

func (o *Options) setDefaults() error {
	o.Hosts = cmp.Or(o.Hosts, 1)
	var name, reason string
	if o.Host < 0 || o.Host >= o.Hosts {
		name, reason = "Host", fmt.Sprintf("host %d of %d; hosts count from 0", o.Host, o.Hosts)
	}
	if o.Dir != "" && o.RecordStore != nil {
		name, reason = "RecordStore", "Dir is set, too"
	}
	for option, d := range map[string]time.Duration{"StepTimeout": o.StepTimeout, "MinTimeout": o.MinTimeout,
		"FirstTimeout": o.FirstTimeout,
		"CancelDelay":  o.CancelDelay} {
		if d < 0 {
			name, reason = option, fmt.Sprintf("%v is negative", d)
		}
	}
	if name != "" {
		return &errkind.Fault{Op: "watchdog: option " + name, Reason: reason, Class: errkind.ValueError,
			Hint: "see watchdog.Options"}
	}
	o.MinTimeout, o.FirstTimeout, o.CancelDelay = cmp.Or(o.MinTimeout, 5*time.Second), cmp.Or(o.FirstTimeout,
		30*time.Minute), cmp.Or(o.CancelDelay, time.Minute)
	if o.Name == "" {
		o.Name, _ = os.Hostname()
	}
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	if o.wallClock == nil {
		o.wallClock = time.Now
	}
	if o.sinceStart == nil {
		began := time.Now()
		o.sinceStart = func() time.Duration { return time.Since(began) }
	}
	return nil
}

// checkInterval returns the interval at which the watchdog checks the hosts.
func (o *Options) checkInterval() time.Duration {
	return min(max(o.MinTimeout/20, 20*time.Millisecond), 250*time.Millisecond)
}

// recordInterval returns the interval at which records are written. If two checks are further
// apart, the process was stopped in between.
func (o *Options) recordInterval() time.Duration { return 4 * o.checkInterval() }
