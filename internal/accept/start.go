package accept

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"

	"github.com/tpustrategy/tpustrategy/strategy"
)

// startLog is a slog.Handler that stores the messages that are logged while the devices are opened.
type startLog struct {
	mu       sync.Mutex
	facts    []Fact
	warnings []string
}

func (*startLog) Enabled(context.Context, slog.Level) bool { return true }

// Handle stores the message.
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
		l.warnings = append(l.warnings, r.Message+" "+b.String())
		return nil
	}
	l.facts = append(l.facts, Fact{r.Message, b.String()})
	return nil
}

// WithAttrs returns l itself.
func (l *startLog) WithAttrs([]slog.Attr) slog.Handler { return l }

// WithGroup returns l itself.
func (l *startLog) WithGroup(string) slog.Handler { return l }

// openDevices opens the devices and runs a small program on all of them.
func openDevices(ctx context.Context, w *partRun) error {
	s := w.session
	sys, err := s.opts.Open(ctx, s.logger)
	s.log.mu.Lock()
	for _, line := range s.log.facts {
		w.addFact(line.Name, "%s", line.Value)
	}
	for _, line := range s.log.warnings {
		w.addFinding("%s", line)
	}
	s.log.mu.Unlock()
	if err != nil {
		return err
	}
	exchange, err := strategy.New(sys, strategy.Options{})
	if err != nil {
		return errors.Join(err, sys.Close())
	}
	if ctx.Err() != nil { // the caller no longer waits
		return errors.Join(context.Cause(ctx), exchange.Close(), sys.Close())
	}
	s.sys, s.exchange = sys, exchange
	s.report.Host, s.report.Hosts = sys.Process(), sys.NumProcesses()
	w.setActivity("the first launch on all devices")
	return s.checkDevices(ctx)
}
