package goodput

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// History describes one attempt of a run, or several consecutive attempts. It can be encoded as
// JSON.
type History struct {
	// StartTime is the start of the first process, and EndTime is the time of the last status
	// record, by the hosts' clocks.
	StartTime time.Time `json:"began"`
	EndTime   time.Time `json:"seen"`
	// Attempts is the number of attempts; 0 means 1.
	Attempts int `json:"lives,omitempty"`
	// FirstStep is the step from which the first attempt started, and LastStep is the last completed
	// step.
	FirstStep int64 `json:"from"`
	LastStep  int64 `json:"to"`
	// Seconds is the time of each kind of activity. The keys are the activity names of package
	// watchdog, "again" for repeated steps, and "down" for the time without a process.
	Seconds map[string]float64 `json:"seconds,omitempty"`
}

// Keys of History.Seconds that are not activities of package watchdog.
const (
	repeatedKind = "again"
	downKind     = "down"
)

// stepKinds are the activities that belong to steps.
var stepKinds = []string{"launch", "result", "own code"}

// Append returns the history of h followed by next. The attempt next starts from a checkpoint, so
// the steps of h after that checkpoint count as repeated. The time between the two attempts counts
// as downtime.
func (h History) Append(next History) History {
	joined := History{StartTime: h.StartTime, EndTime: next.EndTime, Attempts: h.attempts() + next.attempts(),
		FirstStep: h.FirstStep, LastStep: next.LastStep, Seconds: maps.Clone(next.Seconds)}
	if joined.Seconds == nil {
		joined.Seconds = map[string]float64{}
	}
	if next.EndTime.Before(h.EndTime) { // a clock was set back
		joined.EndTime = h.EndTime
	}
	repeated := 0.0
	if steps := h.LastStep - h.FirstStep; next.FirstStep < h.LastStep && steps > 0 {
		repeated = min(float64(h.LastStep-next.FirstStep)/float64(steps), 1)
	}
	joined.FirstStep = min(h.FirstStep, next.FirstStep)
	for kind, s := range h.Seconds {
		if slices.Contains(stepKinds, kind) {
			joined.Seconds[repeatedKind] += s * repeated
			s *= 1 - repeated
		}
		joined.Seconds[kind] += s
	}
	joined.Seconds[downKind] += max(next.StartTime.Sub(h.EndTime).Seconds(), 0)
	return joined
}

func (h History) attempts() int { return max(h.Attempts, 1) }

// Breakdown divides the wall time of a run into components, in seconds. The components add up to
// WallTime.
type Breakdown struct {
	WallTime float64 `json:"wall"`
	Attempts int     `json:"lives"`
	// Steps is the time of productive steps. Repeated is the time of steps that were repeated
	// because no checkpoint contained them.
	Steps    float64 `json:"steps"`
	Repeated float64 `json:"again"`
	// Start is the time of a process before its first step, without compiling and restoring.
	Start   float64 `json:"start"`
	Compile float64 `json:"compile"`
	Restore float64 `json:"restore"`
	Save    float64 `json:"save"`
	// Input is the time waiting for data, and OtherHosts is the time waiting for the other hosts.
	Input      float64 `json:"input"`
	OtherHosts float64 `json:"peers"`
	Hooks      float64 `json:"hooks"`
	// Down is the time without a running process.
	Down float64 `json:"down"`
}

// Breakdown computes the components of the wall time.
func (h History) Breakdown() Breakdown {
	s := Breakdown{WallTime: h.EndTime.Sub(h.StartTime).Seconds(), Attempts: h.attempts()}
	components := s.components()
	counted := 0.0
	for kind, seconds := range h.Seconds {
		counted += seconds
		dst := &s.Start // setup, and activities before the first step
		if i := slices.IndexFunc(components, func(p component) bool { return p.kind == kind }); i >= 0 {
			dst = components[i].seconds
		} else if slices.Contains(stepKinds, kind) && h.LastStep > h.FirstStep {
			dst = &s.Steps
		}
		*dst += seconds
	}
	s.WallTime = max(s.WallTime, counted) // clocks may jump
	s.Start += s.WallTime - counted
	return s
}

// Goodput returns the fraction of the wall time spent in productive steps, which are steps that no
// later attempt repeated. It is from 0 to 1.
func (s Breakdown) Goodput() float64 { return s.fraction(s.Steps) }

func (s Breakdown) fraction(seconds float64) float64 {
	if s.WallTime <= 0 {
		return 0
	}
	return seconds / s.WallTime
}

// Utilization returns the model FLOPs utilization of a run: the operations of its productive steps,
// divided by the operations that the devices could have executed in the wall time. stepFLOPs is the
// number of operations of a step. peak is the peak rate of all devices together, in operations per
// second. Both are in the report of a step (package report). If peak or the wall time is not
// positive, the result is 0.
func (h History) Utilization(stepFLOPs, peak float64) float64 {
	wall := h.Breakdown().WallTime
	if wall <= 0 || peak <= 0 {
		return 0
	}
	return stepFLOPs * float64(h.LastStep-h.FirstStep) / (wall * peak)
}

// component is a component of a Breakdown other than Steps. kind is its key in History.Seconds.
type component struct {
	name, kind string
	seconds    *float64
}

func (s *Breakdown) components() []component {
	return []component{{"start", "setup", &s.Start}, {"compile", "compile", &s.Compile},
		{"restore", "restore", &s.Restore},
		{"save", "save", &s.Save}, {"input", "input", &s.Input}, {"other hosts", "exchange", &s.OtherHosts}, {"hooks",
			"hook", &s.Hooks},
		{"repeated steps", repeatedKind, &s.Repeated}, {"down", downKind, &s.Down}}
}

// String formats the goodput and the components of at least 0.1 %, largest first.
func (s Breakdown) String() string {
	text := fmt.Sprintf("goodput %.1f %% of %v", 100*s.Goodput(),
		time.Duration(s.WallTime*float64(time.Second)).Round(time.Second/10))
	if s.Attempts > 1 {
		text += fmt.Sprintf(" in %d attempts", s.Attempts)
	}
	components := s.components()
	slices.SortStableFunc(components, func(a, b component) int { return cmp.Compare(*b.seconds, *a.seconds) })
	var rest []string
	for _, p := range components {
		if share := s.fraction(*p.seconds); share >= 0.001 {
			rest = append(rest, fmt.Sprintf("%s %.1f %%", p.name, 100*share))
		}
	}
	if len(rest) > 0 {
		text += ": " + strings.Join(rest, ", ")
	}
	return text
}
