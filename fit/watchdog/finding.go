package watchdog

import (
	"fmt"
	"slices"
	"time"
)

// Cause is the kind of problem of a host.
type Cause string

const (
	// Missing means that the host has written no record in this run. Silent means that it no longer
	// writes records: it is dead, stopped, or disconnected. Exited means that it has left the training
	// loop.
	Missing Cause = "missing"
	Silent  Cause = "silent"
	Exited  Cause = "left"
	// The other hosts wait for the host, which is in the [Activity] with the name of the cause.
	InInput   Cause = "input"
	InSave    Cause = "save"
	InHook    Cause = "hook"
	InCompile Cause = "compile"
	InLaunch  Cause = "launch"
	// InExchange means that the host is in a different exchange from the other hosts.
	InExchange Cause = "exchange"
	// Undetermined means that all hosts wait in the same operation, so no host can be identified.
	Undetermined Cause = "nobody"

	// Slow means that the host makes progress, but the others wait for it most of the time.
	// OperationFailed means that an operation of the host fails without ending the run. ClockSkew
	// means that its clock is wrong. StoreUnreachable means that it cannot access the record store.
	Slow             Cause = "slow"
	OperationFailed  Cause = "trouble"
	ClockSkew        Cause = "clock"
	StoreUnreachable Cause = "store"
)

// IsFatal reports whether the cause prevents the run from continuing.
func (c Cause) IsFatal() bool {
	return c != Slow && c != OperationFailed && c != ClockSkew && c != StoreUnreachable
}

// Finding is a problem of a host.
type Finding struct {
	// Host is the number of the host, and Name is its name. For the cause Undetermined, Host is -1.
	Host int    `json:"host"`
	Name string `json:"name,omitempty"`
	// Cause is the kind of problem, and Text describes it.
	Cause Cause  `json:"cause"`
	Text  string `json:"text"`
	// Duration is the duration of the problem in seconds, if it is known.
	Duration float64 `json:"for,omitempty"`
	// Certain means that the run cannot continue: the host has exited or is silent, or its activity
	// has exceeded its own timeout. Otherwise the activity only takes longer than on the other
	// hosts.
	Certain bool `json:"sure,omitempty"`
}

func isFatal(f Finding) bool { return f.Cause.IsFatal() }

func isCertain(f Finding) bool { return f.Certain }

// removeKnown returns the findings whose host and cause differ from all findings in known.
func removeKnown(findings, known []Finding) []Finding {
	return slices.DeleteFunc(slices.Clone(findings), func(f Finding) bool {
		return slices.ContainsFunc(known, func(o Finding) bool { return o.Host == f.Host && o.Cause == f.Cause })
	})
}

func (f Finding) String() string {
	if f.Host < 0 {
		return f.Text
	}
	return hostTitle(f.Host, f.Name) + ": " + f.Text
}

func hostTitle(host int, name string) string {
	if name == "" {
		return fmt.Sprintf("host %d", host)
	}
	return fmt.Sprintf("host %d (%s)", host, name)
}

// activityTexts are the texts of the activities in findings.
var activityTexts = map[Activity]string{Other: "its own code", Input: "the wait for its input", Launch: "the launch",
	Result:   "the wait for its result",
	Exchange: "the exchange", Compile: "the compiler", Save: "its save", Restore: "its restore", Hook: "the hook",
	Setup: "its start"}

// activityText describes the current activity, such as `the exchange "barrier x"`.
func (r *Record) activityText() string {
	if r.ActivityName == "" {
		return activityTexts[r.activity()]
	}
	return fmt.Sprintf("%s %q", activityTexts[r.activity()], r.ActivityName)
}

// formatSeconds formats a duration in seconds: "0.3 s", "12 s", "2m5s".
func formatSeconds(s float64) string {
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
