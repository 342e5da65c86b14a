package watchdog

import (
	"cmp"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/tpustrategy/tpustrategy/errkind"
)

// Options configure a watchdog. The zero value watches a process alone, and tells its context.
type Options struct {
	// Host is the number of this host among Hosts; Hosts 0 is 1.
	Host, Hosts int
	// Name is the host's name in reports; empty is that of the operating system.
	Name string
	// Run names this life of the job, with the same text on all hosts and another one after each
	// restart. Records of another run do not count.
	Run string
	// Place is where the hosts see each other's records: a folder that all share, or the URL of a
	// store; see [Open]. Empty is none: a host then knows of itself alone.
	Place string
	// Board is an open board, in the place of Place. It stays the caller's.
	Board *Board

	// Deadline bounds each wait of a step: for its input, its launch, its result and an exchange. 0
	// learns it: four times the longest of late, and at least Floor.
	Deadline time.Duration
	// Floor is the time below which nothing is late; 0 is 5 seconds.
	Floor time.Duration
	// First bounds a compilation, and what has not been done before in this run, such as the first
	// batch, evaluation or save; 0 is 30 minutes.
	First time.Duration
	// Patience is the time between the first report that the run will not go on and its end: the
	// context of [Watchdog.Context] is canceled if nothing has moved until then. 0 is a minute.
	Patience time.Duration
	// Exit, such as os.Exit, is called with [ExitCode] if the watchdog is not closed 10 seconds, or
	// Patience where that is less, after it canceled the context: the wait is then one that cannot be
	// ended. nil never ends the process.
	Exit func(code int)

	// OnReport is called with each report, on a goroutine of the watchdog's, one at a time.
	OnReport func(Report)
	// Logger receives the reports; nil discards them.
	Logger *slog.Logger

	wall  func() time.Time     // the host's clock
	since func() time.Duration // the monotonic one, since the start
}

// defaults checks the options and fills them in.
func (o *Options) defaults() error {
	o.Hosts = cmp.Or(o.Hosts, 1)
	var name, reason string
	if o.Host < 0 || o.Host >= o.Hosts {
		name, reason = "Host", fmt.Sprintf("host %d of %d; hosts count from 0", o.Host, o.Hosts)
	}
	if o.Place != "" && o.Board != nil {
		name, reason = "Board", "Place is given, too"
	}
	for of, d := range map[string]time.Duration{"Deadline": o.Deadline, "Floor": o.Floor, "First": o.First, "Patience": o.Patience} {
		if d < 0 {
			name, reason = of, fmt.Sprintf("%v is negative", d)
		}
	}
	if name != "" {
		return &errkind.Fault{Op: "watchdog: option " + name, Reason: reason, Class: errkind.ValueError, Hint: "see watchdog.Options"}
	}
	o.Floor, o.First, o.Patience = cmp.Or(o.Floor, 5*time.Second), cmp.Or(o.First, 30*time.Minute), cmp.Or(o.Patience, time.Minute)
	if o.Name == "" {
		o.Name, _ = os.Hostname()
	}
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	if o.wall == nil {
		o.wall = time.Now
	}
	if o.since == nil {
		began := time.Now()
		o.since = func() time.Duration { return time.Since(began) }
	}
	return nil
}

// tick is the time between two looks.
func (o *Options) tick() time.Duration {
	return min(max(o.Floor/20, 20*time.Millisecond), 250*time.Millisecond)
}

// interval is the time between two records, and the most between two looks unless the process is stopped.
func (o *Options) interval() time.Duration { return 4 * o.tick() }
