package accept

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"

	"github.com/tpustrategy/tpustrategy/strategy"
)

// startLog keeps what the start-up logs.
type startLog struct {
	mu    sync.Mutex
	lines []Fact
	warns []string
}

// Enabled says that all is kept.
func (*startLog) Enabled(context.Context, slog.Level) bool { return true }

// Handle keeps a line.
func (l *startLog) Handle(_ context.Context, r slog.Record) error {
	var b strings.Builder
	r.Attrs(func(a slog.Attr) bool {
		if b.Len() > 0 {
			b.WriteString(" ")
		}
		b.WriteString(a.String())
		return true
	})
	l.mu.Lock()
	defer l.mu.Unlock()
	if r.Level >= slog.LevelWarn {
		l.warns = append(l.warns, r.Message+" "+b.String())
		return nil
	}
	l.lines = append(l.lines, Fact{r.Message, b.String()})
	return nil
}

// WithAttrs and WithGroup are not used by what logs here.
func (l *startLog) WithAttrs([]slog.Attr) slog.Handler { return l }

// WithGroup returns the handler itself.
func (l *startLog) WithGroup(string) slog.Handler { return l }

// start opens the devices and meets the other hosts.
func start(ctx context.Context, w *work) error {
	s := w.session
	sys, err := s.opts.Open(ctx, s.logger)
	s.steps.mu.Lock()
	for _, line := range s.steps.lines {
		w.fact(line.Name, "%s", line.Value)
	}
	for _, line := range s.steps.warns {
		w.finding("%s", line)
	}
	s.steps.mu.Unlock()
	if err != nil {
		return err
	}
	exchange, err := strategy.New(sys, strategy.Options{})
	if err != nil {
		return errors.Join(err, sys.Close())
	}
	if ctx.Err() != nil { // nobody waits for it any more
		return errors.Join(context.Cause(ctx), exchange.Close(), sys.Close())
	}
	s.sys, s.exchange = sys, exchange
	s.report.Host, s.report.Hosts = sys.Process(), sys.NumProcesses()
	w.at("the first launch on all devices")
	return s.tryDevices(ctx)
}
