package accept

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/tpu/system"
)

// session is the state of an acceptance run on one host.
type session struct {
	opts   Options
	report *Report
	logger *slog.Logger
	log    *startLog

	sys *system.System
	// exchange is a strategy with one replica on each device, with which the hosts exchange outcomes.
	exchange *strategy.TPUStrategy
	// stopReason is why no further part can use the devices. It is empty while parts can run.
	stopReason string
	// abandoned is true if a part did not return in time. Its goroutine may still use the devices.
	abandoned bool
}

// gracePeriod is how long a part may continue after its time limit before it is abandoned.
const gracePeriod = 5 * time.Second

// Run runs the selected tests of the acceptance test and returns a report, which includes the
// failures on all hosts of the slice. The error is non-nil only for invalid options. All hosts of a
// slice must call Run with the same options.
func Run(ctx context.Context, o Options) (*Report, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	if o.OnOutcome == nil {
		o.OnOutcome = func(Outcome) {}
	}
	if o.Getenv == nil {
		o.Getenv = func(string) string { return "" }
	}
	began := time.Now()
	steps := &startLog{}
	s := &session{opts: o, log: steps, logger: slog.New(steps), report: &Report{Version: Version, Quick: o.Quick,
		Began: began.UTC().Truncate(time.Second)}}
	whole := o.TotalTimeLimit()
	ctx, cancel := withRunningTime(ctx, whole, fmt.Errorf("the run reached its time limit of %v; raise --time-limit",
		whole))
	defer cancel()
	for _, p := range parts {
		if o.includes(p.Name) {
			s.runPart(ctx, p)
		}
	}
	s.close(ctx)
	s.report.Seconds = time.Since(began).Seconds()
	s.report.SetVerdict()
	return s.report, nil
}

// runPart runs one test and exchanges its outcome with the other hosts.
func (s *session) runPart(ctx context.Context, p Part) {
	w := &partRun{session: s, part: p, outcome: Outcome{Part: p.Name, Host: s.report.Host,
		TimeLimit: s.opts.timeLimit(p).Seconds()}}
	switch {
	case s.stopReason != "":
		w.outcome.Status, w.outcome.Findings = NotRun, []string{s.stopReason}
	case ctx.Err() != nil:
		w.outcome.Status, w.outcome.Findings = NotRun, []string{context.Cause(ctx).Error()}
	}
	if w.outcome.Status == NotRun {
		s.recordOutcome(w.outcome)
		return
	}
	running := w.outcome
	running.Status = Running
	s.opts.OnOutcome(running)
	out := w.finish(w.run(ctx))
	out.Host = s.report.Host // known after start
	if s.sys == nil {
		s.recordOutcome(out)
		if s.stopReason == "" {
			s.stopReason = "no devices were opened"
		}
		return
	}
	if p.Name == killName { // the hosts do not exchange outcomes after this part
		s.recordOutcome(out)
		s.stopReason = "a host was ended, as asked"
		return
	}
	all, err := s.exchangeOutcomes(ctx, p, out)
	if err != nil {
		s.recordOutcome(out)
		s.stopReason = fmt.Sprintf("after the part %s the devices do not answer: %v", p.Name, err)
		return
	}
	for _, o := range all {
		s.recordOutcome(o)
	}
}

func (s *session) recordOutcome(o Outcome) {
	s.report.Outcomes = append(s.report.Outcomes, o)
	s.opts.OnOutcome(o)
}

// exchangeTimeout is how long a host waits for the outcomes of the other hosts, in addition to the
// time limit of the part.
const exchangeTimeout = 10 * time.Second

// exchangeOutcomes returns the outcomes of all hosts. If the last test was canceled, it first
// checks that the devices still respond, because a program that the test launched may never
// complete.
func (s *session) exchangeOutcomes(ctx context.Context, p Part, mine Outcome) (all []Outcome, err error) {
	wait := exchangeTimeout
	if s.sys.NumProcesses() > 1 {
		wait += s.opts.timeLimit(p) // another host may still run the part
	}
	ctx, cancel := withRunningTime(context.WithoutCancel(ctx), wait, fmt.Errorf("no answer in %v", wait))
	defer cancel()
	came := make(chan []Outcome, 1)
	back, err := s.runUntil(ctx, time.Second, func() error {
		all, err := s.gatherOutcomes(ctx, p, mine)
		came <- all
		return err
	})
	if !back {
		return nil, &errkind.Fault{Op: "accept", Reason: fmt.Sprintf("no answer in %v", wait),
			Class: errkind.DeadlineExceededError}
	}
	return <-came, err
}

// gatherOutcomes exchanges outcomes with a collective and returns the outcomes of all hosts.
func (s *session) gatherOutcomes(ctx context.Context, p Part, mine Outcome) ([]Outcome, error) {
	if mine.Status == Failed || mine.Status == Hung || s.sys.NumProcesses() > 1 {
		if err := s.checkDevices(ctx); err != nil {
			return nil, err
		}
	}
	text, err := json.Marshal(mine)
	if err != nil {
		return nil, err
	}
	rows, err := s.exchange.GatherBytes(ctx, "accept "+p.Name, text)
	if err != nil {
		return nil, err
	}
	all := make([]Outcome, len(rows))
	for i, row := range rows {
		if err := json.Unmarshal(row, &all[i]); err != nil {
			return nil, err
		}
	}
	if s.sys.Platform() != "cpu" || s.opts.Hooks.ChangeMeasurement != nil { // CPU devices share processors
		compareHosts(all)
	}
	return all, nil
}

// runUntil calls f in a goroutine and waits for it. If f has not returned within the grace period
// after ctx is done, runUntil returns false, and f continues to run in the goroutine.
func (s *session) runUntil(ctx context.Context, while time.Duration, f func() error) (back bool, err error) {
	done := make(chan error, 1)
	go func() { done <- f() }()
	select {
	case err := <-done:
		return true, err
	case <-ctx.Done():
	}
	select {
	case err := <-done:
		return true, err
	case <-time.After(while):
		s.abandoned = true
		return false, nil
	}
}

// close closes the devices, unless an abandoned goroutine still uses them.
func (s *session) close(ctx context.Context) {
	if s.sys == nil || s.abandoned || s.stopReason != "" {
		return // an abandoned part may still use it; it is closed when the process exits
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 20*time.Second)
	defer cancel()
	if err := errors.Join(s.exchange.Shutdown(ctx), s.sys.Shutdown(ctx)); err != nil {
		s.recordOutcome(Outcome{Part: startName, Host: s.report.Host, Status: PassedWithFindings,
			Findings: []string{"closing: " + err.Error()}})
	}
}

// run runs the test within its time limit. hung is true if the test did not return in time.
func (w *partRun) run(ctx context.Context) (hung bool) {
	budget, seams := w.session.opts.timeLimit(w.part), w.session.opts.Hooks
	ctx, cancel := withRunningTime(ctx, budget, fmt.Errorf("the time of the part, %v, is over", budget))
	defer cancel()
	began := time.Now()
	defer func() {
		w.mu.Lock()
		w.outcome.Seconds = time.Since(began).Seconds()
		w.mu.Unlock()
	}()
	late := cmp.Or(seams.GracePeriod, gracePeriod)
	back, err := w.session.runUntil(ctx, late, func() (err error) {
		defer errkind.Recover("panic", &err)
		if seams.BeforePart != nil {
			if err := seams.BeforePart(ctx, w.session.report.Host, w.part.Name); err != nil {
				return err
			}
		}
		return w.part.check(ctx, w)
	})
	if !back {
		w.addFailure("no answer in %v: %v", budget+late, context.Cause(ctx))
		return true
	}
	if p := (*errkind.PanicError)(nil); errors.As(err, &p) {
		stack := strings.Split(p.Stack, "\n")
		err = fmt.Errorf("panic: %v\n%s", p.Value, strings.Join(stack[:min(len(stack), 24)], "\n"))
	}
	if err != nil {
		w.mu.Lock()
		doing := w.activity
		w.mu.Unlock()
		if doing != "" {
			doing = "at " + doing + ": "
		}
		w.addFailure("%s%v", doing, err)
	}
	return false
}
