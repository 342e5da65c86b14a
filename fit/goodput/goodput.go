package goodput

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// History is what is known of a life of a run, or of several in a row, as JSON holds it.
type History struct {
	// Began is the start of the first process, and Seen the last sign of life, by the hosts' clocks.
	Began time.Time `json:"began"`
	Seen  time.Time `json:"seen"`
	// Lives is how many there are; 0 is 1.
	Lives int `json:"lives,omitempty"`
	// From is the step from which the first life went on, and To the last step that was taken.
	From int64 `json:"from"`
	To   int64 `json:"to"`
	// Seconds are those of each kind of activity, by the names of package watchdog's, and of what is
	// known of earlier lives only: steps taken again, and down.
	Seconds map[string]float64 `json:"seconds,omitempty"`
}

// The kinds of time that no activity has.
const (
	again = "again"
	down  = "down"
)

// worked are the activities that steps are made of.
var worked = []string{"launch", "result", "own code"}

// Then returns the history of the lives of h and the next one, which goes on from a checkpoint: the
// steps of h after it are taken again. The time between the two is down.
func (h History) Then(next History) History {
	all := History{Began: h.Began, Seen: next.Seen, Lives: h.lives() + next.lives(), From: h.From, To: next.To, Seconds: maps.Clone(next.Seconds)}
	if all.Seconds == nil {
		all.Seconds = map[string]float64{}
	}
	if next.Seen.Before(h.Seen) { // a clock that went back
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

// Shares are the parts of a run's wall time, in seconds. They add up to Wall.
type Shares struct {
	Wall  float64 `json:"wall"`
	Lives int     `json:"lives"`
	// Steps are those that count, Again those that were taken once more, as no checkpoint had them.
	Steps float64 `json:"steps"`
	Again float64 `json:"again"`
	// Start is what a process does before its first step, beside compiling and restoring.
	Start   float64 `json:"start"`
	Compile float64 `json:"compile"`
	Restore float64 `json:"restore"`
	Save    float64 `json:"save"`
	// Input waits for data, and Peers for the other hosts.
	Input float64 `json:"input"`
	Peers float64 `json:"peers"`
	Hooks float64 `json:"hooks"`
	// Down is the time in which no process ran.
	Down float64 `json:"down"`
}

// Shares divides the wall time.
func (h History) Shares() Shares {
	s := Shares{Wall: h.Seen.Sub(h.Began).Seconds(), Lives: h.lives()}
	parts := s.parts()
	known := 0.0
	for kind, seconds := range h.Seconds {
		known += seconds
		into := &s.Start // setup, and what was begun before a first step
		if i := slices.IndexFunc(parts, func(p part) bool { return p.kind == kind }); i >= 0 {
			into = parts[i].seconds
		} else if slices.Contains(worked, kind) && h.To > h.From {
			into = &s.Steps
		}
		*into += seconds
	}
	s.Wall = max(s.Wall, known) // clocks jump
	s.Start += s.Wall - known
	return s
}

// Goodput is the part of the wall time in which steps were taken that count, from 0 to 1.
func (s Shares) Goodput() float64 { return s.of(s.Steps) }

func (s Shares) of(part float64) float64 {
	if s.Wall <= 0 {
		return 0
	}
	return part / s.Wall
}

// Utilization is the model FLOPs utilization of a run: the operations of the steps that count, of so
// many each, over what devices with such a peak, of all of them in operations a second, could have
// done in the run's wall time. Both are of the report of a step (package report); 0 is not known.
func (h History) Utilization(stepFLOPs, peak float64) float64 {
	wall := h.Shares().Wall
	if wall <= 0 || peak <= 0 {
		return 0
	}
	return stepFLOPs * float64(h.To-h.From) / (wall * peak)
}

// part is one of the shares beside Steps, with its name and the kind of activity that goes into it.
type part struct {
	name, kind string
	seconds    *float64
}

func (s *Shares) parts() []part {
	return []part{{"start", "setup", &s.Start}, {"compile", "compile", &s.Compile}, {"restore", "restore", &s.Restore},
		{"save", "save", &s.Save}, {"input", "input", &s.Input}, {"other hosts", "exchange", &s.Peers}, {"hooks", "hook", &s.Hooks},
		{"steps taken again", again, &s.Again}, {"down", down, &s.Down}}
}

// String names the goodput and the parts that are at least a thousandth, the largest first.
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
