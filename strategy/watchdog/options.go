package watchdog

import (
	"cmp"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/strategy/status"
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
	// store; see status.Open. Empty is none: a host then knows of itself alone.
	Place string
	// Board is an open board, in the place of Place. It stays the caller's.
	Board *status.Board

	// Deadline bounds each wait of a step: for its input, its launch, its result and an exchange. 0
	// learns it: four times the longest of late, and at least Floor.
	Deadline time.Duration
	// Floor is the time below which nothing is late; 0 is 5 seconds.
	Floor time.Duration
	// First bounds a compilation, and what has not been done before in this run, such as the first
	// batch, evaluation or save; 0 is 30 minutes.
	First time.Duration
	// Patience is the time between the first report that the run will not go on and its end: the
	// context of [Watchdog.Context] is cancelled if nothing has moved until then. 0 is a minute.
	Patience time.Duration
	// Exit, such as os.Exit, is called with [ExitCode] if the watchdog is not closed Grace after it
	// cancelled the context: the wait is then one that cannot be ended. nil never ends the process.
	Exit func(code int)
	// Grace is the time from the cancellation to Exit; 0 is 10 seconds.
	Grace time.Duration

	// Interval is the time between two records; 0 is a second, and two seconds where records are
	// objects. If this host waits for long, they come each second.
	Interval time.Duration
	// OnReport is called with each report, on a goroutine of the watchdog's, one at a time.
	OnReport func(Report)
	// Logger receives the reports; nil discards them.
	Logger *slog.Logger

	clock func() time.Time // of the records
}

// defaults checks the options and fills them in.
func (o *Options) defaults() error {
	if o.Hosts == 0 {
		o.Hosts = 1
	}
	wrong := func(name, reason string) error {
		return &errkind.Fault{Op: "watchdog: option " + name, Reason: reason, Class: errkind.ValueError, Hint: "see watchdog.Options"}
	}
	if o.Hosts < 0 || o.Host < 0 || o.Host >= o.Hosts {
		return wrong("Host", fmt.Sprintf("host %d of %d; hosts count from 0", o.Host, o.Hosts))
	}
	if o.Place != "" && o.Board != nil {
		return wrong("Board", "Place is given, too")
	}
	for _, d := range []struct {
		name  string
		value *time.Duration
		or    time.Duration
	}{{"Deadline", &o.Deadline, 0}, {"Floor", &o.Floor, 5 * time.Second}, {"First", &o.First, 30 * time.Minute}, {"Patience", &o.Patience, time.Minute},
		{"Grace", &o.Grace, 10 * time.Second}, {"Interval", &o.Interval, 0}} {
		if *d.value < 0 {
			return wrong(d.name, fmt.Sprintf("%v is negative", *d.value))
		}
		*d.value = cmp.Or(*d.value, d.or)
	}
	if o.Name == "" {
		o.Name, _ = os.Hostname()
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.clock == nil {
		o.clock = time.Now
	}
	return nil
}

// interval is the time between two records on a board.
func (o *Options) interval(b *status.Board) time.Duration {
	if o.Interval > 0 {
		return o.Interval
	}
	if b != nil && b.Objects() {
		return 2 * time.Second
	}
	return time.Second
}
