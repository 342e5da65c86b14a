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

// Step evaluates plans for one training step. Its methods must be safe for concurrent use, except
// that Sketch is not called concurrently with itself.
type Step interface {
	// Sketch lowers the step's program for a plan. An error means that the step cannot run with the
	// plan.
	Sketch(ctx context.Context, p Plan) (Sketch, error)
	// Probe returns estimates that the compiler produces within seconds.
	Probe(ctx context.Context, p Plan) (Figures, error)
	// Compile compiles the program completely. A program that does not fit has Figures with Bytes
	// above Limit, and no error.
	Compile(ctx context.Context, p Plan) (Figures, error)
}

// Sketch describes a step's program before it is compiled.
type Sketch struct {
	// Program identifies the program: it is equal for equal programs on equal slices.
	Program string
	// Bytes is the memory of the variables and arguments on a device, and Limit is the memory of
	// the device; 0 if it is not known.
	Bytes, Limit int64
	// Seconds is a lower bound of the step time. Expected is an estimate of the step time, which
	// determines the order of the probes.
	Seconds, Expected float64
	// Rows is the number of rows of a step over all replicas; 0 if it is not known.
	Rows int
	// Variables are the variables that rules may shard, by path.
	Variables []Variable
}

// Variable is a variable of a step.
type Variable struct {
	Path string
	Dims []int
}

// Figures are the predicted time and memory of a program that was probed or compiled.
type Figures struct {
	// Seconds is the predicted time of a step. Products, Memory and Waits are its parts.
	Seconds  float64 `json:"predicted_seconds"`
	Products float64 `json:"products_seconds"`
	Memory   float64 `json:"memory_seconds"`
	Waits    float64 `json:"waits_seconds"`
	// Bytes is the memory of the program on a device, which is an estimate for a probe, and Limit
	// is the memory of the device; 0 if it is not known.
	Bytes int64 `json:"memory_bytes"`
	Limit int64 `json:"memory_limit,omitempty"`
}

// Goal is the criterion by which plans are compared.
type Goal string

const (
	// Fastest minimizes the time per row.
	Fastest Goal = "fastest"
	// Cheapest minimizes the cost per row.
	Cheapest Goal = "cheapest"
	// Largest maximizes the rows of a step. Among equal plans the fastest is the best.
	Largest Goal = "largest-batch"
)

// Options configure a search. The zero value searches all plans for the fastest.
type Options struct {
	Goal Goal
	// Dollars returns the price of a slice per hour and whether it is known. With nil no price is
	// known.
	Dollars func(slice string) (float64, bool)
	// Budget is the maximum price per hour in dollars; 0 means no limit.
	Budget float64
	// Within limits the time, and Probes limits the number, of probes; 0 means no limit. Plans that
	// were not probed have the verdict Untried.
	Within time.Duration
	Probes int
	// Splits also searches the shardings of groups of variables, starting from the best plan.
	Splits bool
	// Compile is the number of best plans that are compiled completely; 0 means three, and a negative
	// number means none. Up to the same number of further plans are compiled while a probed plan is
	// expected to be better than the best compiled plan.
	Compile int
	// Parallel is the number of concurrent probes; 0 means one.
	Parallel int
	// Progress is called with lines about the progress of the search. It may be nil.
	Progress func(line string)
}

// maxProbed is the ratio of a probe's memory estimate to the memory of a device above which a plan
// is too large. Compiled programs need up to a quarter less than the estimate, because they keep
// some values in fast memory.
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
	done int // number of probes
}

// Search searches plans for the best way to run a step. It returns the context's error if the
// context ends, and the first error of the step if no plan can be sketched. It is not an error if
// no plan fits; see [Result.Best].
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
	if err == nil && o.Compile >= 0 {
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
	if s.o.Progress != nil {
		s.o.Progress(fmt.Sprintf(format, args...))
	}
}

// sketch sketches plans and returns the candidates for probes, the most promising first.
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
	if refused != nil && !slices.ContainsFunc(s.all, func(c *Candidate) bool { return c.Verdict != Refused && c.Verdict != OverBudget }) {
		return nil, refused
	}
	slices.SortStableFunc(next, func(a, b *Candidate) int { return s.compare(a, b, a.Sketch.Expected, b.Sketch.Expected) })
	return next, nil
}

func (s *search) tooDear(c *Candidate) bool {
	switch {
	case (s.o.Goal == Cheapest || s.o.Budget > 0) && !c.Priced:
		c.Verdict, c.Reason = OverBudget, "the price of its chips is not known"
	case s.o.Budget > 0 && c.Dollars > s.o.Budget:
		c.Verdict, c.Reason = OverBudget, Money(c.Dollars)+" an hour"
	}
	return c.Verdict == OverBudget
}

// compare orders candidates by the goal, for the given step times.
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

// order orders candidates for a result: first the plans that can run, by their expected times, then
// the other plans by their verdicts.
func (s *search) order(a, b *Candidate) int {
	stage := func(c *Candidate) int { return slices.Index(verdicts, c.Verdict) }
	if a.runs() && b.runs() {
		return cmp.Or(s.compare(a, b, a.Expected, b.Expected), cmp.Compare(stage(a), stage(b)))
	}
	return cmp.Or(cmp.Compare(stage(a), stage(b)), s.compare(a, b, a.Sketch.Seconds, b.Sketch.Seconds))
}

// estimate sets the expected times of the plans that were probed or compiled. Probes and compiled
// programs have different times (a probe hides no collectives, for example), so the time of a plan
// that was only probed is multiplied by the mean ratio over the compiled plans.
func (s *search) estimate() {
	sum, count := 0.0, 0
	for _, c := range s.all {
		if c.Probe != nil && c.Compile != nil && c.Probe.Seconds > 0 && c.Compile.Seconds > 0 {
			sum += math.Log(c.Compile.Seconds / c.Probe.Seconds)
			count++
		}
	}
	scale := math.Exp(sum / float64(max(count, 1)))
	for _, c := range s.all {
		switch {
		case c.Verdict == Compiled:
			c.Expected = c.Compile.Seconds
		case c.Verdict == Probed:
			c.Expected = scale * c.Probe.Seconds
		}
	}
}

// probe probes candidates concurrently, starting in their order.
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

// probed stores the result of a probe.
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

// whole compiles the best plans completely. Each compilation corrects the estimates of the plans
// that were only probed, so the next plan is selected after each compilation.
func (s *search) whole(ctx context.Context) error {
	want, fit, grows := cmp.Or(s.o.Compile, 3), 0, 1.0
	for {
		s.estimate()
		var next, best *Candidate
		for _, c := range s.all {
			// The memory of compiled programs corrects the estimates of the other probes.
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
			next.Verdict, next.Compile = TooLarge, &f
			grows = max(grows, float64(f.Bytes)/float64(max(next.Probe.Bytes, 1)))
		default:
			next.Verdict, next.Compile = Compiled, &f
			fit++
		}
	}
}
