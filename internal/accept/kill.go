package accept

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"time"
)

// killHost kills the process of one host. Each other host waits for the killed host in a barrier
// with a deadline, and records the error and the time until it is reported. If the runtime reports
// no error, killHost records a finding, because jobs then need their own deadlines to detect a lost
// host.
func killHost(ctx context.Context, w *partRun) error {
	s := w.session
	victim := *s.opts.Kill
	if victim >= s.report.Hosts {
		return fmt.Errorf("there is no host %d to end: there are %d", victim, s.report.Hosts)
	}
	if s.report.Hosts == 1 {
		w.addFinding("no host was ended: this is the only one")
		return nil
	}
	if s.report.Host == victim {
		w.addFact("kill", "this host's process is ended")
		if s.opts.KillSelf != nil {
			s.opts.KillSelf()
			return nil
		}
		return syscall.Kill(syscall.Getpid(), syscall.SIGKILL)
	}
	ctx, cancel := context.WithTimeout(ctx, s.opts.timeLimit(w.part)*3/4)
	defer cancel()
	began := time.Now()
	err := s.exchange.Barrier(ctx, "accept kill")
	took := time.Since(began).Seconds()
	switch {
	case err == nil:
		return fmt.Errorf("host %d came to the exchange after its end", victim)
	case errors.Is(err, context.DeadlineExceeded):
		w.addFinding("host %d is gone, and the runtime did not say so in %.0f s: the wait ended by its deadline: %v", victim,
			took, err)
	default:
		w.addFact("kill", "after %.1f s: %v", took, err)
	}
	return nil
}
