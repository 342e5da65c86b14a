package goodput

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// History describes one life of a run, or several consecutive lives. It can be encoded as JSON.
type History struct {
	// Began is the start of the first process, and Seen is the time of the last record, by the
	// hosts' clocks.
	Began time.Time `json:"began"`
	Seen  time.Time `json:"seen"`
	// Lives is the number of lives; 0 means 1.
	Lives int `json:"lives,omitempty"`
	// From is the step from which the first life started, and To is the last completed step.
	From int64 `json:"from"`
	To   int64 `json:"to"`
	// Seconds is the time of each kind of activity, by the names of package watchdog. For joined
	// lives it also contains the time of repeated steps ("again") and the time without a process
	// ("down").
	Seconds map[string]float64 `json:"seconds,omitempty"`
}

// Kinds of time that belong to no activity.
const (
	again = "again"
	down  = "down"
)

// worked are the activities of steps.
var worked = []string{"launch", "result", "own code"}

// Append joins h and the following life. The following life starts from a checkpoint, so the steps of
// h after that checkpoint count as repeated. The time between the two lives is down.
func (h History) Append(next History) History {
	all := History{Began: h.Began, Seen: next.Seen, Lives: h.lives() + next.lives(), From: h.From, To: next.To, Seconds: maps.Clone(next.Seconds)}
	if all.Seconds == nil {
		all.Seconds = map[string]float64{}
	}
	if next.Seen.Before(h.Seen) { // a clock was set back
		all.Seen = h.Seen
	}
	lost := 0.0
	if taken := h.To - h.From; next.From < h.To && taken > 0 {
		lost = min(float64(h.To-next.From)/float64(taken), 1)
	}
	all.From = min(h.From, next.From)
	for kind, s := range h.Seconds {
		if slices.Contains(worked, kind) {
			all.Seconds[again] += s * lost
			s *= 1 - lost
		}
		all.Seconds[kind] += s
	}
	all.Seconds[down] += max(next.Began.Sub(h.Seen).Seconds(), 0)
	return all
}

func (h History) lives() int { return max(h.Lives, 1) }

// Shares are the parts of a run's wall time, in seconds. All parts add up to Wall.
type Shares struct {
	Wall  float64 `json:"wall"`
	Lives int     `json:"lives"`
	// Steps is the time of steps that count. Again is the time of steps that were repeated because
	// no checkpoint contained them.
	Steps float64 `json:"steps"`
	Again float64 `json:"again"`
	// Start is the time of a process before its first step, without compiling and restoring.
	Start   float64 `json:"start"`
	Compile float64 `json:"compile"`
	Restore float64 `json:"restore"`
	Save    float64 `json:"save"`
	// Input is the time waiting for data, and Peers is the time waiting for the other hosts.
	Input float64 `json:"input"`
	Peers float64 `json:"peers"`
	Hooks float64 `json:"hooks"`
	// Down is the time without a running process.
	Down float64 `json:"down"`
}

// Shares computes the parts of the wall time.
func (h History) Shares() Shares {
	s := Shares{Wall: h.Seen.Sub(h.Began).Seconds(), Lives: h.lives()}
	parts := s.parts()
	known := 0.0
	for kind, seconds := range h.Seconds {
		known += seconds
		into := &s.Start // setup, and activities before the first step
		if i := slices.IndexFunc(parts, func(p part) bool { return p.kind == kind }); i >= 0 {
			into = parts[i].seconds
		} else if slices.Contains(worked, kind) && h.To > h.From {
			into = &s.Steps
		}
		*into += seconds
	}
	s.Wall = max(s.Wall, known) // clocks may jump
	s.Start += s.Wall - known
	return s
}

// Goodput returns the fraction of the wall time spent in steps that count, from 0 to 1.
func (s Shares) Goodput() float64 { return s.of(s.Steps) }

func (s Shares) of(part float64) float64 {
	if s.Wall <= 0 {
		return 0
	}
	return part / s.Wall
}

// Utilization returns the model FLOPs utilization of a run: the operations of the steps that count,
// divided by the operations that the devices could have executed in the run's wall time. stepFLOPs
// is the number of operations of a step, and peak is the peak rate of all devices together in
// operations per second; both are in the report of a step (package report). The result is 0 if it
// is not known.
func (h History) Utilization(stepFLOPs, peak float64) float64 {
	wall := h.Shares().Wall
	if wall <= 0 || peak <= 0 {
		return 0
	}
	return stepFLOPs * float64(h.To-h.From) / (wall * peak)
}

// part is a share other than Steps, with its name and the kind of activity that it contains.
type part struct {
	name, kind string
	seconds    *float64
}

func (s *Shares) parts() []part {
	return []part{{"start", "setup", &s.Start}, {"compile", "compile", &s.Compile}, {"restore", "restore", &s.Restore},
		{"save", "save", &s.Save}, {"input", "input", &s.Input}, {"other hosts", "exchange", &s.Peers}, {"hooks", "hook", &s.Hooks},
		{"steps taken again", again, &s.Again}, {"down", down, &s.Down}}
}

// String returns a text with the goodput and the other parts that are at least 0.1 %, the largest
// first.
func (s Shares) String() string {
	text := fmt.Sprintf("goodput %.1f %% of %v", 100*s.Goodput(), time.Duration(s.Wall*float64(time.Second)).Round(time.Second/10))
	if s.Lives > 1 {
		text += fmt.Sprintf(" in %d lives", s.Lives)
	}
	parts := s.parts()
	slices.SortStableFunc(parts, func(a, b part) int { return cmp.Compare(*b.seconds, *a.seconds) })
	var rest []string
	for _, p := range parts {
		if share := s.of(*p.seconds); share >= 0.001 {
			rest = append(rest, fmt.Sprintf("%s %.1f %%", p.name, 100*share))
		}
	}
	if len(rest) > 0 {
		text += ": " + strings.Join(rest, ", ")
	}
	return text
}
