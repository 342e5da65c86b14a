package fit

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/fit/interrupt"
	"github.com/tpustrategy/tpustrategy/fit/watchdog"
)

// Watch runs a watchdog for the run; see package watchdog. The watchdog reports a step, an input, a
// save, a hook or a compilation that does not complete. On all hosts it names the host for which
// the others wait, and it ends the run instead of waiting forever.
//
//	fit.Watch(watchdog.Options{Dir: "run", Exit: os.Exit})
//
// Dir is a folder that all processes share, or the URL of a store. `tpustrategy watch` shows the
// status records of the processes in it. Watch sets the options Host and Hosts from the strategy's
// processes, and sets Run to an ID on which the processes agree at the start. If the caller sets
// Run, the watchdog also names a process that never starts. Reports are logged to Options.Logger
// unless the watchdog's options have a Logger.
//
// If the watchdog ends the run, the error is a [*watchdog.StuckError] and its exit code
// (interrupt.ExitCodeFor) is [watchdog.ExitCode]. With several processes no checkpoint is saved
// then, because a save requires all of them. An operation that ignores its context, such as a
// launch on a TPU, cannot be canceled; if Run does not return, the watchdog's Exit ends the
// process. If a launch or an exchange fails, for example because another process died, Run waits up
// to twice Options.MinTimeout for the watchdog to identify that process. The error then names the
// process and has the same exit code.
//
// If the environment variable TPUSTRATEGY_GOODPUT names a file, process 0 writes one line to it
// that summarizes the use of the run's time. It updates the line at each save and at the end. The
// scripts of `tpustrategy launch` show the line.
//
// The watchdog adds less than a microsecond to a step, and no allocation.
func Watch(o watchdog.Options) Hook { return Hook{Name: "watch", watch: &o} }

// startWatch starts the watchdog if the run has a Watch hook. It returns a context that the
// watchdog can cancel.
func (r *runner) startWatch(ctx context.Context) (context.Context, error) {
	if r.watchOptions == nil {
		return ctx, nil
	}
	o := *r.watchOptions
	o.Host, o.Hosts = r.strategy.Process(), r.strategy.NumProcesses()
	if o.Logger == nil {
		o.Logger = r.log
	}
	if o.Run == "" {
		starting, cancel := context.WithTimeoutCause(ctx, cmp.Or(o.FirstTimeout, startTimeout),
			&errkind.Fault{Op: "fit: the run's name",
				Reason: fmt.Sprintf("not all %d processes reached it",
					o.Hosts), Hint: "check which process has ended or has not called fit.Run yet",
				Class: errkind.DeadlineExceededError})
		defer cancel()
		id, err := r.strategy.BroadcastBytes(starting, "fit: the run's name", []byte(rand.Text()))
		if err != nil {
			return ctx, r.convertInterrupt(ctx, err)
		}
		o.Run = string(id)
	}
	dog, err := watchdog.Start(ctx, o)
	if err == nil {
		r.watchdog = dog
		r.uninterrupted, r.stopUninterrupted = dog.Context(context.WithoutCancel(ctx))
		ctx, r.stopWatched = dog.Context(ctx)
	}
	return ctx, r.exchangeVotes(ctx, err, nil)
}

// startTimeout is the default of watchdog.Options.FirstTimeout: the maximum delay between the
// starts of the processes.
const startTimeout = 30 * time.Minute

// diagnoseFailure waits after a failed collective operation until the watchdog knows which process
// caused the failure. The plugin's error does not name the process.
func (r *runner) diagnoseFailure(err error, activity watchdog.Activity) {
	if r.watchdog == nil || err == nil || !r.isMultiProcess() || r.inAgreement || !activity.WaitsForHosts() &&
		!isUnreachable(err) || errors.As(err, new(*interrupt.Error)) {
		return
	}
	r.setActivity(watchdog.Exchange, "fit: who is lost")
	limited, cancel := context.WithTimeout(context.Background(), 2*cmp.Or(r.watchOptions.MinTimeout, defaultMinTimeout))
	defer cancel()
	r.watchdogErr = r.waitForSuspect(limited)
}

// waitForSuspect waits until the watchdog suspects a host, and returns its error. It returns nil
// when ctx ends.
func (r *runner) waitForSuspect(ctx context.Context) error {
	for {
		if err := r.watchdog.SuspectedError(); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// defaultMinTimeout is the default of watchdog.Options.MinTimeout.
const defaultMinTimeout = 5 * time.Second

// endWatch closes the watchdog at the end of the run. err is the error of the run. If the watchdog
// has found the cause of the failure, endWatch returns err joined with the watchdog's error.
func (r *runner) endWatch(err error) error {
	if r.watchdog == nil {
		return err
	}
	if err != nil {
		if stuck := cmp.Or(r.watchdogErr, r.watchdog.SuspectedError()); stuck != nil && !errors.Is(err, stuck) {
			err = errors.Join(stuck, err)
		}
	}
	if r.isRefused(err) {
		_ = r.watchdog.Withdraw(err)
	} else {
		_ = r.watchdog.Close(err)
		r.writeGoodputFile()
	}
	r.stopWatched()
	r.stopUninterrupted()
	return err
}

// isRefused reports whether all processes rejected the run before its first step, for example
// because of other settings. The status records of earlier attempts must then stay unchanged.
func (r *runner) isRefused(err error) bool {
	return err != nil && !r.started && (r.inAgreement || !r.isMultiProcess()) &&
		!errors.As(err, new(*interrupt.Error)) && r.watchdogError() == nil
}

// isUnreachable reports whether an error means that another process or a service does not respond.
func isUnreachable(err error) bool {
	kind := errkind.KindOf(err)
	return kind == errkind.UnavailableError || kind == errkind.DeadlineExceededError
}

// watchdogError returns the error with which the watchdog canceled the run, or nil.
func (r *runner) watchdogError() error {
	if r.watchdog == nil {
		return nil
	}
	return r.watchdog.Err()
}

// withoutInterrupt returns a context that an interrupt does not cancel. The watchdog can still
// cancel it.
func (r *runner) withoutInterrupt(ctx context.Context) context.Context {
	if r.watchdog != nil {
		return r.uninterrupted
	}
	return context.WithoutCancel(ctx)
}

// setActivity reports the current activity to the watchdog and to the hooks.
func (r *runner) setActivity(kind watchdog.Activity, name string) {
	r.activity = kind
	if r.watchdog != nil {
		r.watchdog.SetActivity(kind, name)
	}
	for i := range r.hooks {
		if doing := r.hooks[i].OnActivity; doing != nil {
			doing(kind, name)
		}
	}
}

func (r *runner) reportSave(err error) {
	if r.watchdog == nil {
		return
	}
	r.watchdog.ReportError(err)
	if r.savedStep > 0 {
		r.watchdog.SetCheckpoint(r.savedStep)
	}
	r.writeGoodputFile()
}
