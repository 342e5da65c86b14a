package watchdog

import (
	"fmt"
	"slices"
	"time"
)

// Cause says what is the matter with a host.
type Cause string

const (
	// Missing says that the host has given no sign of life in this run, Silent that it gives none
	// any more: it is dead, stopped, or cut off. Left says that it has ended the loop.
	Missing Cause = "missing"
	Silent  Cause = "silent"
	Left    Cause = "left"
	// The others wait for the host, which itself waits. The cause is the word of its [Activity]:
	// for its input, its save, a hook, the compiler, or a launch.
	InInput   Cause = "input"
	InSave    Cause = "save"
	InHook    Cause = "hook"
	InCompile Cause = "compile"
	InLaunch  Cause = "launch"
	// InExchange says that the host is in another exchange than the others.
	InExchange Cause = "exchange"
	// Nobody says that all hosts wait at the same place, and none stands out.
	Nobody Cause = "nobody"

	// Slow says that the others wait for the host in most of their time, though it goes on; Trouble
	// that something fails there without ending the run; Clock that its clock is wrong; Store that
	// it cannot reach the place of the records.
	Slow    Cause = "slow"
	Trouble Cause = "trouble"
	Clock   Cause = "clock"
	Store   Cause = "store"
)

// Stops reports whether the run cannot go on for the cause.
func (c Cause) Stops() bool { return c != Slow && c != Trouble && c != Clock && c != Store }

// Finding names a host and what is the matter with it.
type Finding struct {
	// Host is its number, and Name its name. For the cause Nobody the host is -1.
	Host int    `json:"host"`
	Name string `json:"name,omitempty"`
	// Cause is the cause, and Text says it with its figures.
	Cause Cause  `json:"cause"`
	Text  string `json:"text"`
	// For is how many seconds it has lasted, as far as it is known.
	For float64 `json:"for,omitempty"`
	// Sure says that the run will not go on: the host is not there, or its activity has lasted
	// longer than that ever may. Otherwise it is only longer than the other hosts took.
	Sure bool `json:"sure,omitempty"`
}

func stops(f Finding) bool { return f.Cause.Stops() }

func sure(f Finding) bool { return f.Sure }

// unlike are the findings of which the others have none with the same host and cause.
func unlike(all, others []Finding) []Finding {
	return slices.DeleteFunc(slices.Clone(all), func(f Finding) bool {
		return slices.ContainsFunc(others, func(o Finding) bool { return o.Host == f.Host && o.Cause == f.Cause })
	})
}

// String returns a text such as "host 3 (w-3): no sign of life for 6 s, after step 40".
func (f Finding) String() string {
	if f.Host < 0 {
		return f.Text
	}
	return title(f.Host, f.Name) + ": " + f.Text
}

func title(host int, name string) string {
	if name == "" {
		return fmt.Sprintf("host %d", host)
	}
	return fmt.Sprintf("host %d (%s)", host, name)
}

// whereabouts say where a host is in an activity.
var whereabouts = map[Activity]string{Other: "its own code", Input: "the wait for its input", Launch: "the launch", Result: "the wait for its result",
	Exchange: "the exchange", Compile: "the compiler", Save: "its save", Restore: "its restore", Hook: "the hook", Setup: "its start"}

// doing says what a host does, such as `the exchange "barrier x"`.
func (r *Record) doing() string {
	if r.Detail == "" {
		return whereabouts[r.kind()]
	}
	return fmt.Sprintf("%s %q", whereabouts[r.kind()], r.Detail)
}

// seconds prints a time in seconds: "0.3 s", "12 s", "2m5s".
func seconds(s float64) string {
	switch {
	case s < 10:
		return fmt.Sprintf("%.1f s", s)
	case s < 120:
		return fmt.Sprintf("%.0f s", s)
	}
	return time.Duration(s * float64(time.Second)).Round(time.Second).String()
}

func plural(n int, one, more string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, more)
}
