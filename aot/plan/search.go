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

// Sketch describes a step's program after lowering and before compilation.
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
	// Seconds is the predicted time of a step. Its parts are Products (matrix multiplications),
	// Memory (memory accesses) and Waits (for communication).
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
	// LargestBatch maximizes the rows of a step. Among equal plans the fastest is the best.
	LargestBatch Goal = "largest-batch"
)

// Options configure a search. The zero value searches all plans for the fastest.
type Options struct {
	Goal Goal
	// HourlyPrice returns the price of a slice per hour and whether it is known. If it is nil, no
	// price is known.
	HourlyPrice func(slice string) (float64, bool)
	// Budget is the maximum price per hour in dollars; 0 means no limit.
	Budget float64
	// TimeLimit and MaxProbes limit the time and the number of probes; 0 means no limit. Plans that
	// were not probed have the verdict NotTried.
	TimeLimit time.Duration
	MaxProbes int
	// Splits also searches the shardings of groups of variables, starting from the best plan.
	Splits bool
	// Compile is the number of best plans that are compiled completely; 0 means three, and a negative
	// number means none. Up to the same number of further plans are compiled while a probed plan is
	// expected to be better than the best compiled plan.
	Compile int
	// Concurrency is the number of concurrent probes; 0 means one.
	Concurrency int
	// Progress is called with lines about the progress of the search. It may be nil.
	Progress func(line string)
}

// maxProbeMemoryRatio limits the ratio of a probe's memory estimate to the memory of a device. It
// is above 1 because compiled programs need up to a quarter less than the estimate: they keep some
// values in fast memory.
const maxProbeMemoryRatio = 1.3

// searcher is the state of one call of Search.
type searcher struct {
	step       Step
	options    Options
	candidates []*Candidate

	deadline   time.Time
	mu         sync.Mutex
	byProgram  map[string]*Candidate // the first candidate with each program
	bestProbed *Candidate
	probeCount int
}

// Search searches plans for the best way to run a step. It returns the context's error if the
// context ends, and the first error of the step if it supports none of the plans. It is not an
// error if no plan fits; see [Result.Best].
func Search(ctx context.Context, plans []Plan, step Step, o Options) (*Result, error) {
	if len(plans) == 0 {
		return nil, &errkind.Fault{Op: "plan: search", Reason: "there are no plans",
			Hint: "give slices, and numbers of logical devices that divide their devices", Class: errkind.ValueError}
	}
	o.Goal = cmp.Or(o.Goal, Fastest)
	if o.HourlyPrice == nil {
		o.HourlyPrice = func(string) (float64, bool) { return 0, false }
	}
	s := &searcher{step: step, options: o, byProgram: map[string]*Candidate{}}
	began := time.Now()
	if o.TimeLimit > 0 {
		s.deadline = began.Add(o.TimeLimit)
	}
	first, err := s.sketchPlans(ctx, plans)
	if err == nil {
		err = s.probePlans(ctx, first)
	}
	if err == nil && o.Splits {
		err = s.searchShardings(ctx)
	}
	if err == nil && o.Compile >= 0 {
		err = s.compileBest(ctx)
	}
	if err != nil {
		return nil, err
	}
	s.setExpectedSeconds()
	r := &Result{Goal: o.Goal, Seconds: time.Since(began).Seconds(), Candidates: s.candidates}
	slices.SortStableFunc(r.Candidates, s.compareResults)
	return r, nil
}

func (s *searcher) logf(format string, args ...any) {
	if s.options.Progress != nil {
		s.options.Progress(fmt.Sprintf(format, args...))
	}
}

// sketchPlans lowers the programs of plans. It returns the candidates to probe, the most promising
// first.
func (s *searcher) sketchPlans(ctx context.Context, plans []Plan) (queue []*Candidate, err error) {
	var firstErr error
	for i, p := range plans {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		c := &Candidate{Plan: p, Verdict: Sketched}
		s.candidates = append(s.candidates, c)
		if c.HourlyPrice, c.HasPrice = s.options.HourlyPrice(p.Slice); s.isOverBudget(c) {
			continue
		}
		if i%10 == 0 {
			s.logf("sketching %d of %d plans", i+1, len(plans))
		}
		sketch, err := s.step.Sketch(ctx, p)
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		if err != nil {
			c.Verdict, c.Reason = Rejected, err.Error()
			firstErr = cmp.Or(firstErr, err)
			continue
		}
		c.Sketch = sketch
		key := p.Slice + "\x00" + sketch.Program
		switch same := s.byProgram[key]; {
		case same != nil:
			c.Verdict, c.Reason = Duplicate, same.Plan.String()
		case sketch.Limit > 0 && sketch.Bytes > sketch.Limit:
			c.Verdict = TooLarge
			s.byProgram[key] = c
		default:
			s.byProgram[key] = c
			queue = append(queue, c)
		}
	}
	if firstErr != nil && !slices.ContainsFunc(s.candidates,
		func(c *Candidate) bool { return c.Verdict != Rejected && c.Verdict != OverBudget }) {
		return nil, firstErr
	}
	slices.SortStableFunc(queue, func(a, b *Candidate) int {
		return s.compareByGoal(a, b, a.Sketch.Expected,
			b.Sketch.Expected)
	})
	return queue, nil
}

func (s *searcher) isOverBudget(c *Candidate) bool {
	switch {
	case (s.options.Goal == Cheapest || s.options.Budget > 0) && !c.HasPrice:
		c.Verdict, c.Reason = OverBudget, "the price of its chips is not known"
	case s.options.Budget > 0 && c.HourlyPrice > s.options.Budget:
		c.Verdict, c.Reason = OverBudget, FormatDollars(c.HourlyPrice)+" an hour"
	}
	return c.Verdict == OverBudget
}

// compareByGoal orders candidates by the goal. secondsA and secondsB are their step times.
func (s *searcher) compareByGoal(a, b *Candidate, secondsA, secondsB float64) int {
	rowsA, rowsB := max(a.Sketch.Rows, 1), max(b.Sketch.Rows, 1)
	if s.options.Goal == LargestBatch && rowsA != rowsB {
		return cmp.Compare(rowsB, rowsA)
	}
	costA, costB := secondsA/float64(rowsA), secondsB/float64(rowsB)
	if s.options.Goal == Cheapest {
		costA, costB = costA*a.HourlyPrice, costB*b.HourlyPrice
	}
	return cmp.Compare(costA, costB)
}

// compareResults orders candidates for a result. Plans that can run are first, ordered by their
// expected times. The other plans are ordered by verdict.
func (s *searcher) compareResults(a, b *Candidate) int {
	stage := func(c *Candidate) int { return slices.Index(verdicts, c.Verdict) }
	if a.canRun() && b.canRun() {
		return cmp.Or(s.compareByGoal(a, b, a.ExpectedSeconds, b.ExpectedSeconds), cmp.Compare(stage(a), stage(b)))
	}
	return cmp.Or(cmp.Compare(stage(a), stage(b)), s.compareByGoal(a, b, a.Sketch.Seconds, b.Sketch.Seconds))
}

// setExpectedSeconds sets the expected times of plans. Probes and compiled programs differ in time, for
// example because a probe does not overlap collectives with computation. The time of a plan that was
// only probed is therefore scaled by the mean ratio of the two times over the compiled plans.
func (s *searcher) setExpectedSeconds() {
	sum, count := 0.0, 0
	for _, c := range s.candidates {
		if c.Probe != nil && c.Compiled != nil && c.Probe.Seconds > 0 && c.Compiled.Seconds > 0 {
			sum += math.Log(c.Compiled.Seconds / c.Probe.Seconds)
			count++
		}
	}
	scale := math.Exp(sum / float64(max(count, 1)))
	for _, c := range s.candidates {
		switch {
		case c.Verdict == Compiled:
			c.ExpectedSeconds = c.Compiled.Seconds
		case c.Verdict == Probed:
			c.ExpectedSeconds = scale * c.Probe.Seconds
		}
	}
}

// probePlans estimates the step times of the candidates in queue by quick, partial compilations.
// The compilations run concurrently and start in the order of queue.
func (s *searcher) probePlans(ctx context.Context, queue []*Candidate) error {
	index, failed := 0, error(nil)
	nextCandidate := func() *Candidate {
		s.mu.Lock()
		defer s.mu.Unlock()
		for index < len(queue) && failed == nil && ctx.Err() == nil {
			c := queue[index]
			index++
			switch {
			case s.bestProbed != nil && s.compareByGoal(c, s.bestProbed, c.Sketch.Seconds, s.bestProbed.Probe.Seconds) > 0:
				c.Verdict = Slower
			case s.options.MaxProbes > 0 && s.probeCount >= s.options.MaxProbes, !s.deadline.IsZero() &&
				time.Now().After(s.deadline):
				c.Verdict = NotTried
			default:
				s.probeCount++
				best := ""
				if s.bestProbed != nil {
					best = fmt.Sprintf("; the best so far takes %.4g s: %s", s.bestProbed.Probe.Seconds, s.bestProbed.Plan)
				}
				s.logf("probing %d of at most %d plans%s", index, len(queue), best)
				return c
			}
		}
		return nil
	}
	var workers sync.WaitGroup
	for range max(s.options.Concurrency, 1) {
		workers.Go(func() {
			for c := nextCandidate(); c != nil; c = nextCandidate() {
				figures, err := s.step.Probe(ctx, c.Plan)
				s.mu.Lock()
				if ctx.Err() == nil {
					s.recordProbe(c, figures, err)
				}
				s.mu.Unlock()
			}
		})
	}
	workers.Wait()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return failed
}

func (s *searcher) recordProbe(c *Candidate, f Figures, err error) {
	if err != nil {
		c.Verdict, c.Reason = Failed, err.Error()
		return
	}
	c.Probe, c.Verdict = &f, Probed
	if f.Limit > 0 && float64(f.Bytes) > maxProbeMemoryRatio*float64(f.Limit) {
		c.Verdict = TooLarge
		return
	}
	if s.bestProbed == nil || s.compareByGoal(c, s.bestProbed, f.Seconds, s.bestProbed.Probe.Seconds) < 0 {
		s.bestProbed = c
	}
}

// compileBest compiles the best plans completely, one after another. The result of each compilation
// corrects the estimates of the plans that were not compiled yet, before the next plan is selected.
func (s *searcher) compileBest(ctx context.Context) error {
	numWanted, numFit, memoryRatio := cmp.Or(s.options.Compile, 3), 0, 1.0
	for {
		s.setExpectedSeconds()
		var next, best *Candidate
		for _, c := range s.candidates {
			// The memory of compiled programs corrects the estimates of the other probes.
			if c.Verdict == Probed && c.Probe.Limit > 0 && memoryRatio > 1 &&
				memoryRatio*float64(c.Probe.Bytes) > float64(c.Probe.Limit) {
				c.Verdict, c.Reason = TooLarge, fmt.Sprintf("by its probe, as finished programs need %.0f %% more than theirs",
					100*(memoryRatio-1))
			}
			if c.Verdict == Probed && (next == nil || s.compareResults(c, next) < 0) {
				next = c
			}
			if c.Verdict == Compiled && (best == nil || s.compareResults(c, best) < 0) {
				best = c
			}
		}
		if next == nil || numFit == 2*numWanted || numFit >= numWanted && s.compareResults(best, next) < 0 {
			return nil
		}
		s.logf("compiling plan %d of the %d best whole: %s", numFit+1, max(numWanted, numFit+1), next.Plan)
		f, err := s.step.Compile(ctx, next.Plan)
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case err != nil:
			next.Verdict, next.Reason = Failed, err.Error()
		case f.Limit > 0 && f.Bytes > f.Limit:
			next.Verdict, next.Compiled = TooLarge, &f
			memoryRatio = max(memoryRatio, float64(f.Bytes)/float64(max(next.Probe.Bytes, 1)))
		default:
			next.Verdict, next.Compiled = Compiled, &f
			numFit++
		}
	}
}
