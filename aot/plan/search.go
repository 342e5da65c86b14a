package plan

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/tpustrategy/tpustrategy/errkind"
)

// Step is a step that is planned. Its calls may come from several goroutines, Sketch from one at a time.
type Step interface {
	// Sketch makes the step's program for a plan, and says what that shows. Its error says why the step
	// cannot be run so.
	Sketch(ctx context.Context, p Plan) (Sketch, error)
	// Probe says what the compiler shows of the program in seconds.
	Probe(ctx context.Context, p Plan) (Figures, error)
	// Compile says what the finished program takes. A program that does not fit has Figures with more
	// Bytes than Limit, and no error.
	Compile(ctx context.Context, p Plan) (Figures, error)
}

// Sketch is what a step's program shows before it is compiled.
type Sketch struct {
	// Program is equal for plans whose programs are, on equal slices.
	Program string
	// Bytes are what variables and arguments take of a device, and Limit what it has; 0 is not known.
	Bytes, Limit int64
	// Seconds is a time that no run of the program is faster than, and Expected one that it may take, by
	// which plans are probed in their order.
	Seconds, Expected float64
	// Rows is the number of rows of a step, over all replicas; 0 is not known.
	Rows int
	// Variables are those that rules may split, by path.
	Variables []Variable
}

// Variable is a variable of a step.
type Variable struct {
	Path string
	Dims []int
}

// Figures are what is known of a program that was probed or compiled.
type Figures struct {
	// Seconds is the predicted time of a step, of which Products, Memory and Waits are the parts.
	Seconds  float64 `json:"predicted_seconds"`
	Products float64 `json:"products_seconds"`
	Memory   float64 `json:"memory_seconds"`
	Waits    float64 `json:"waits_seconds"`
	// Bytes are what the program takes of a device, estimated of a probe, and Limit what it has; 0 is not
	// known.
	Bytes int64 `json:"memory_bytes"`
	Limit int64 `json:"memory_limit,omitempty"`
}

// Goal is what the best plan has the most or the least of.
type Goal string

const (
	// Fastest is the least time for a row.
	Fastest Goal = "fastest"
	// Cheapest is the fewest dollars for a row.
	Cheapest Goal = "cheapest"
	// Largest is the most rows in a step, and of equal ones the fastest.
	Largest Goal = "largest-batch"
)

// Options configure a search. The zero value looks for the fastest plan among all.
type Options struct {
	Goal Goal
	// Dollars returns what a slice costs an hour, and whether that is known. Nil knows none.
	Dollars func(slice string) (float64, bool)
	// Budget is the most dollars an hour; 0 is any number.
	Budget float64
	// Within ends the probing after so long, and Probes after so many; 0 is no end. What was not tried is
	// said.
	Within time.Duration
	Probes int
	// Splits searches the splits of groups of variables too, from the best plan on.
	Splits bool
	// Whole is how many of the best plans are compiled whole; 0 is three, and below 0 none. Up to as many
	// again are compiled while a plan that was only probed is expected to be better than the best compiled
	// one.
	Whole int
	// Parallel is the number of probes at a time; 0 is one.
	Parallel int
	// Told is told how far the search is, in a line; nil is nobody.
	Told func(line string)
}

// maxProbed is how much more than its memory a device may need by the estimate of a probe before the plan
// is given up: finished programs were found to need up to a quarter less, as they keep some values in the
// fast memory, and the compiler has the last word.
const maxProbed = 1.3

// search is one call of Search.
type search struct {
	step Step
	o    Options
	all  []*Candidate

	ends time.Time
	mu   sync.Mutex
	made map[string]*Candidate // by program
	best *Candidate
	done int // probes
}

// Search finds the best of plans for a step. It returns the context's error if that ends, and the first
// error of the step if no plan can even be sketched. That no plan fits is no error: the Result says so.
func Search(ctx context.Context, plans []Plan, step Step, o Options) (*Result, error) {
	if len(plans) == 0 {
		return nil, &errkind.Fault{Op: "plan: search", Reason: "there are no plans", Hint: "give slices, and numbers of logical devices that divide their devices", Class: errkind.ValueError}
	}
	o.Goal = cmp.Or(o.Goal, Fastest)
	if o.Dollars == nil {
		o.Dollars = func(string) (float64, bool) { return 0, false }
	}
	s := &search{step: step, o: o, made: map[string]*Candidate{}}
	began := time.Now()
	if o.Within > 0 {
		s.ends = began.Add(o.Within)
	}
	first, err := s.sketch(ctx, plans)
	if err == nil {
		err = s.probe(ctx, first)
	}
	if err == nil && o.Splits {
		err = s.splits(ctx)
	}
	if err == nil && o.Whole >= 0 {
		err = s.whole(ctx)
	}
	if err != nil {
		return nil, err
	}
	s.estimate()
	r := &Result{Goal: o.Goal, Took: time.Since(began).Seconds(), Candidates: s.all}
	slices.SortStableFunc(r.Candidates, s.order)
	return r, nil
}

func (s *search) told(format string, args ...any) {
	if s.o.Told != nil {
		s.o.Told(fmt.Sprintf(format, args...))
	}
}

// sketch makes the programs of plans, and returns those to go on with, the ones first that may be best.
func (s *search) sketch(ctx context.Context, plans []Plan) (next []*Candidate, err error) {
	var refused error
	for i, p := range plans {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		c := &Candidate{Plan: p, Verdict: Sketched}
		s.all = append(s.all, c)
		if c.Dollars, c.Priced = s.o.Dollars(p.Slice); s.tooDear(c) {
			continue
		}
		if i%10 == 0 {
			s.told("sketching %d of %d plans", i+1, len(plans))
		}
		sketch, err := s.step.Sketch(ctx, p)
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		if err != nil {
			c.Verdict, c.Reason = Refused, err.Error()
			refused = cmp.Or(refused, err)
			continue
		}
		c.Sketch = sketch
		key := p.Slice + "\x00" + sketch.Program
		switch same := s.made[key]; {
		case same != nil:
			c.Verdict, c.Reason = Same, same.Plan.String()
		case sketch.Limit > 0 && sketch.Bytes > sketch.Limit:
			c.Verdict = TooLarge
			s.made[key] = c
		default:
			s.made[key] = c
			next = append(next, c)
		}
	}
	if refused != nil && !slices.ContainsFunc(s.all, func(c *Candidate) bool { return c.Verdict != Refused && c.Verdict != TooDear }) {
		return nil, refused
	}
	slices.SortStableFunc(next, func(a, b *Candidate) int { return s.compare(a, b, a.Sketch.Expected, b.Sketch.Expected) })
	return next, nil
}

func (s *search) tooDear(c *Candidate) bool {
	switch {
	case (s.o.Goal == Cheapest || s.o.Budget > 0) && !c.Priced:
		c.Verdict, c.Reason = TooDear, "the price of its chips is not known"
	case s.o.Budget > 0 && c.Dollars > s.o.Budget:
		c.Verdict, c.Reason = TooDear, Money(c.Dollars)+" an hour"
	}
	return c.Verdict == TooDear
}

// compare orders candidates by the goal, if a step of them takes so long.
func (s *search) compare(a, b *Candidate, secondsOfA, secondsOfB float64) int {
	rowsOfA, rowsOfB := max(a.Sketch.Rows, 1), max(b.Sketch.Rows, 1)
	if s.o.Goal == Largest && rowsOfA != rowsOfB {
		return cmp.Compare(rowsOfB, rowsOfA)
	}
	ofA, ofB := secondsOfA/float64(rowsOfA), secondsOfB/float64(rowsOfB)
	if s.o.Goal == Cheapest {
		ofA, ofB = ofA*a.Dollars, ofB*b.Dollars
	}
	return cmp.Compare(ofA, ofB)
}

// order compares candidates for a result: first the plans that can be run, by the times that are expected
// of them, then the other plans by their verdicts.
func (s *search) order(a, b *Candidate) int {
	stage := func(c *Candidate) int { return slices.Index(verdicts, c.Verdict) }
	if a.runs() && b.runs() {
		return cmp.Or(s.compare(a, b, a.Expected, b.Expected), cmp.Compare(stage(a), stage(b)))
	}
	return cmp.Or(cmp.Compare(stage(a), stage(b)), s.compare(a, b, a.Sketch.Seconds, b.Sketch.Seconds))
}

// estimate sets the expected times of the plans that were probed or compiled. The time of a probe and the
// time of the finished program differ (a probe hides no collectives, for example), so the time of a plan
// that was only probed is multiplied by the mean ratio that the compiled plans show.
func (s *search) estimate() {
	sum, count := 0.0, 0
	for _, c := range s.all {
		if c.Probe != nil && c.Whole != nil && c.Probe.Seconds > 0 && c.Whole.Seconds > 0 {
			sum += math.Log(c.Whole.Seconds / c.Probe.Seconds)
			count++
		}
	}
	scale := math.Exp(sum / float64(max(count, 1)))
	for _, c := range s.all {
		switch {
		case c.Verdict == Compiled:
			c.Expected = c.Whole.Seconds
		case c.Verdict == Probed:
			c.Expected = scale * c.Probe.Seconds
		}
	}
}

// probe probes candidates side by side, in their order.
func (s *search) probe(ctx context.Context, queue []*Candidate) error {
	at, failed := 0, error(nil)
	take := func() *Candidate {
		s.mu.Lock()
		defer s.mu.Unlock()
		for at < len(queue) && failed == nil && ctx.Err() == nil {
			c := queue[at]
			at++
			switch {
			case s.best != nil && s.compare(c, s.best, c.Sketch.Seconds, s.best.Probe.Seconds) > 0:
				c.Verdict = Slower
			case s.o.Probes > 0 && s.done >= s.o.Probes, !s.ends.IsZero() && time.Now().After(s.ends):
				c.Verdict = Untried
			default:
				s.done++
				best := ""
				if s.best != nil {
					best = fmt.Sprintf("; the best so far takes %.4g s: %s", s.best.Probe.Seconds, s.best.Plan)
				}
				s.told("probing %d of at most %d plans%s", at, len(queue), best)
				return c
			}
		}
		return nil
	}
	var under sync.WaitGroup
	for range max(s.o.Parallel, 1) {
		under.Go(func() {
			for c := take(); c != nil; c = take() {
				figures, err := s.step.Probe(ctx, c.Plan)
				s.mu.Lock()
				if ctx.Err() == nil {
					s.probed(c, figures, err)
				}
				s.mu.Unlock()
			}
		})
	}
	under.Wait()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return failed
}

// probed notes what a probe gave.
func (s *search) probed(c *Candidate, f Figures, err error) {
	if err != nil {
		c.Verdict, c.Reason = Failed, err.Error()
		return
	}
	c.Probe, c.Verdict = &f, Probed
	if f.Limit > 0 && float64(f.Bytes) > maxProbed*float64(f.Limit) {
		c.Verdict = TooLarge
		return
	}
	if s.best == nil || s.compare(c, s.best, f.Seconds, s.best.Probe.Seconds) < 0 {
		s.best = c
	}
}

// whole compiles the best plans. Each compilation corrects the estimates of the plans that were only
// probed, so the next plan is chosen again.
func (s *search) whole(ctx context.Context) error {
	want, fit, grows := cmp.Or(s.o.Whole, 3), 0, 1.0
	for {
		s.estimate()
		var next, best *Candidate
		for _, c := range s.all {
			// A finished program that needs more memory than its probe tells that of the other probes.
			if c.Verdict == Probed && c.Probe.Limit > 0 && grows > 1 && grows*float64(c.Probe.Bytes) > float64(c.Probe.Limit) {
				c.Verdict, c.Reason = TooLarge, fmt.Sprintf("by its probe, as finished programs need %.0f %% more than theirs", 100*(grows-1))
			}
			if c.Verdict == Probed && (next == nil || s.order(c, next) < 0) {
				next = c
			}
			if c.Verdict == Compiled && (best == nil || s.order(c, best) < 0) {
				best = c
			}
		}
		if next == nil || fit == 2*want || fit >= want && s.order(best, next) < 0 {
			return nil
		}
		s.told("compiling plan %d of the %d best whole: %s", fit+1, max(want, fit+1), next.Plan)
		f, err := s.step.Compile(ctx, next.Plan)
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case err != nil:
			next.Verdict, next.Reason = Failed, err.Error()
		case f.Limit > 0 && f.Bytes > f.Limit:
			next.Verdict, next.Whole = TooLarge, &f
			grows = max(grows, float64(f.Bytes)/float64(max(next.Probe.Bytes, 1)))
		default:
			next.Verdict, next.Whole = Compiled, &f
			fit++
		}
	}
}
