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

// session is a run on one host.
type session struct {
	opts   Options
	report *Report
	logger *slog.Logger
	steps  *startLog

	sys *system.System
	// exchange is the strategy by which the hosts talk, one replica for each device.
	exchange *strategy.TPUStrategy
	// stuck says why nothing more can run on the devices.
	stuck string
	// left is set once a part is still under way in a goroutine that was left behind.
	left bool
}

// patience is how long a part may take to end after its time.
const patience = 5 * time.Second

// Run runs the parts and returns what came of them. Faults of the slice are in the report; an error
// is of the options only. All hosts of a slice call Run with the same options.
func Run(ctx context.Context, o Options) (*Report, error) {
	if err := o.Check(); err != nil {
		return nil, err
	}
	if o.Tell == nil {
		o.Tell = func(Outcome) {}
	}
	if o.Getenv == nil {
		o.Getenv = func(string) string { return "" }
	}
	began := time.Now()
	steps := &startLog{}
	s := &session{opts: o, steps: steps, logger: slog.New(steps), report: &Report{Version: Version, Quick: o.Quick, Began: began.UTC().Truncate(time.Second)}}
	whole := o.Whole()
	ctx, cancel := within(ctx, whole, fmt.Errorf("the run reached its time limit of %v; raise --time-limit", whole))
	defer cancel()
	for _, p := range parts {
		if o.wanted(p.Name) {
			s.one(ctx, p)
		}
	}
	s.close(ctx)
	s.report.Seconds = time.Since(began).Seconds()
	s.report.Conclude()
	return s.report, nil
}

// one runs a part, and exchanges what came of it with the other hosts.
func (s *session) one(ctx context.Context, p Part) {
	w := &work{session: s, part: p, out: Outcome{Part: p.Name, Host: s.report.Host, Budget: s.opts.budget(p).Seconds()}}
	switch {
	case s.stuck != "":
		w.out.Status, w.out.Findings = NotRun, []string{s.stuck}
	case ctx.Err() != nil:
		w.out.Status, w.out.Findings = NotRun, []string{context.Cause(ctx).Error()}
	}
	if w.out.Status == NotRun {
		s.add(w.out)
		return
	}
	running := w.out
	running.Status = Running
	s.opts.Tell(running)
	out := w.result(w.do(ctx))
	out.Host = s.report.Host // known after start
	if s.sys == nil {
		s.add(out)
		if s.stuck == "" {
			s.stuck = "no devices were opened"
		}
		return
	}
	if p.Name == killPart { // nobody meets any more
		s.add(out)
		s.stuck = "a host was ended, as asked"
		return
	}
	all, err := s.meet(ctx, p, out)
	if err != nil {
		s.add(out)
		s.stuck = fmt.Sprintf("after the part %s the devices do not answer: %v", p.Name, err)
		return
	}
	for _, o := range all {
		s.add(o)
	}
}

func (s *session) add(o Outcome) {
	s.report.Outcomes = append(s.report.Outcomes, o)
	s.opts.Tell(o)
}

// meeting bounds the exchange after a part, beside the time that a host may be behind another.
const meeting = 10 * time.Second

// meet gives each host the outcomes of all. Where a part was cut it also tries the devices, whose
// queue may hold a launch that never ends.
func (s *session) meet(ctx context.Context, p Part, mine Outcome) (all []Outcome, err error) {
	wait := meeting
	if s.sys.NumProcesses() > 1 {
		wait += s.opts.budget(p) // another may still be at it
	}
	ctx, cancel := within(context.WithoutCancel(ctx), wait, fmt.Errorf("no answer in %v", wait))
	defer cancel()
	came := make(chan []Outcome, 1)
	back, err := s.await(ctx, time.Second, func() error {
		all, err := s.swap(ctx, p, mine)
		came <- all
		return err
	})
	if !back {
		return nil, &errkind.Fault{Op: "accept", Reason: fmt.Sprintf("no answer in %v", wait), Class: errkind.DeadlineExceededError}
	}
	return <-came, err
}

// swap gives this host's outcome for those of all.
func (s *session) swap(ctx context.Context, p Part, mine Outcome) ([]Outcome, error) {
	if mine.Status == Failed || mine.Status == Hung || s.sys.NumProcesses() > 1 {
		if err := s.tryDevices(ctx); err != nil {
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
	if s.sys.Platform() != "cpu" || s.opts.Seams.Figure != nil { // whose devices share processors
		compareHosts(all)
	}
	return all, nil
}

// await calls f, which sees the end of ctx and then has a while to return, unless a call in it does not
// come back: then it is left behind.
func (s *session) await(ctx context.Context, while time.Duration, f func() error) (back bool, err error) {
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
		s.left = true
		return false, nil
	}
}

// close closes what is open, as far as that is possible in a while.
func (s *session) close(ctx context.Context) {
	if s.sys == nil || s.left || s.stuck != "" {
		return // a part that was left behind still uses it: the process's end closes it
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 20*time.Second)
	defer cancel()
	if err := errors.Join(s.exchange.Shutdown(ctx), s.sys.Shutdown(ctx)); err != nil {
		s.add(Outcome{Part: startPart, Host: s.report.Host, Status: Found, Findings: []string{"closing: " + err.Error()}})
	}
}

// do runs a part within its time. hung says that the part has not come back.
func (w *work) do(ctx context.Context) (hung bool) {
	budget, seams := w.session.opts.budget(w.part), w.session.opts.Seams
	ctx, cancel := within(ctx, budget, fmt.Errorf("the time of the part, %v, is over", budget))
	defer cancel()
	began := time.Now()
	defer func() {
		w.mu.Lock()
		w.out.Seconds = time.Since(began).Seconds()
		w.mu.Unlock()
	}()
	late := cmp.Or(seams.Patience, patience)
	back, err := w.session.await(ctx, late, func() (err error) {
		defer errkind.Recover("panic", &err)
		if seams.Before != nil {
			if err := seams.Before(ctx, w.session.report.Host, w.part.Name); err != nil {
				return err
			}
		}
		return w.part.run(ctx, w)
	})
	if !back {
		w.fail("no answer in %v: %v", budget+late, context.Cause(ctx))
		return true
	}
	if p := (*errkind.PanicError)(nil); errors.As(err, &p) {
		stack := strings.Split(p.Stack, "\n")
		err = fmt.Errorf("panic: %v\n%s", p.Value, strings.Join(stack[:min(len(stack), 24)], "\n"))
	}
	if err != nil {
		w.mu.Lock()
		doing := w.doing
		w.mu.Unlock()
		if doing != "" {
			doing = "at " + doing + ": "
		}
		w.fail("%s%v", doing, err)
	}
	return false
}
