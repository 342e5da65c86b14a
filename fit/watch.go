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

// Watch runs a watchdog for the run. It reports a step, an input, a save, a hook or a compilation
// that does not complete, names on all hosts the host that the others wait for, and ends the run
// instead of waiting forever. See package watchdog.
//
//	fit.Watch(watchdog.Options{Place: "run", Exit: os.Exit})
//
// Place is a folder that all processes share, or the URL of a store. `tpustrategy watch` shows the
// records of the processes in it. Watch sets the options Host and Hosts from the strategy's
// processes, and sets Run to an ID on which the processes agree at the start. If the caller sets
// Run, the watchdog also names a process that never reaches that agreement. The reports are logged
// to Options.Logger unless the watchdog's options have a Logger.
//
// If the watchdog ends the run, the error is a [*watchdog.StuckError] and its exit code
// (interrupt.Code) is [watchdog.ExitCode]. With several processes no checkpoint is saved then,
// because a save requires all of them. An operation that ignores its context, such as a launch on a
// TPU, cannot be ended: if Run does not return, the watchdog's Exit ends the process. If a launch
// or an exchange fails, for example because another process died, Run waits up to twice
// Options.Floor for the watchdog to identify that process. The error then names the process and has
// the same exit code.
//
// If the environment variable TPUSTRATEGY_GOODPUT names a file, process 0 writes one line to it
// that summarizes the use of the run's time. It updates the line at each save and at the end. The
// scripts of `tpustrategy launch` show the line.
//
// The watchdog adds less than a microsecond to a step, and no allocation.
func Watch(o watchdog.Options) Hook { return Hook{Name: "watch", watch: &o} }

// startWatch starts the watchdog, if the run has one, and returns the context that it can end.
func (r *run) startWatch(ctx context.Context) (context.Context, error) {
	if r.watch == nil {
		return ctx, nil
	}
	o := *r.watch
	o.Host, o.Hosts = r.strategy.Process(), r.strategy.NumProcesses()
	if o.Logger == nil {
		o.Logger = r.log
	}
	if o.Run == "" {
		starting, cancel := context.WithTimeoutCause(ctx, cmp.Or(o.First, startTime), &errkind.Fault{Op: "fit: the run's name",
			Reason: fmt.Sprintf("not all %d processes came to it", o.Hosts), Hint: "see which of them has ended, or is still at what it does before fit.Run", Class: errkind.DeadlineExceededError})
		defer cancel()
		id, err := r.strategy.BroadcastBytes(starting, "fit: the run's name", []byte(rand.Text()))
		if err != nil {
			return ctx, r.orInterrupted(ctx, err)
		}
		o.Run = string(id)
	}
	dog, err := watchdog.Start(ctx, o)
	if err == nil {
		r.dog = dog
		r.firmly, r.release = dog.Context(context.WithoutCancel(ctx))
		ctx, r.unwatch = dog.Context(ctx)
	}
	return ctx, r.agree(ctx, err, nil)
}

// startTime is the default of watchdog.Options.First: the maximum delay between the starts of the
// processes.
const startTime = 30 * time.Minute

// blame waits after a failed operation of all processes until the watchdog knows which process
// caused the failure. The plugin's error does not name the process.
func (r *run) blame(err error, doing watchdog.Activity) {
	if r.dog == nil || err == nil || !r.several() || r.agreed || !doing.WaitsForHosts() && !unreached(err) || errors.As(err, new(*interrupt.Error)) {
		return
	}
	r.does(watchdog.Exchange, "fit: who is lost")
	limited, cancel := context.WithTimeout(context.Background(), 2*cmp.Or(r.watch.MinTimeout, defaultFloor))
	defer cancel()
	r.lost = r.suspected(limited)
}

// suspected waits until the watchdog suspects a host, and returns its error. It returns nil when
// ctx ends.
func (r *run) suspected(ctx context.Context) error {
	for {
		if err := r.dog.Suspected(); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// defaultFloor is the default of watchdog.Options.Floor.
const defaultFloor = 5 * time.Second

// endWatch closes the watchdog with the run's error, and joins the watchdog's error to it.
func (r *run) endWatch(err error) error {
	if r.dog == nil {
		return err
	}
	if err != nil {
		if stuck := cmp.Or(r.lost, r.dog.Suspected()); stuck != nil && !errors.Is(err, stuck) {
			err = errors.Join(stuck, err)
		}
	}
	if r.refused(err) {
		_ = r.dog.Withdraw(err)
	} else {
		_ = r.dog.Close(err)
		r.tellGoodput()
	}
	r.unwatch()
	r.release()
	return err
}

// refused reports whether all processes have refused to begin the run, for example a resume with
// other settings. The records of earlier lives must stay unchanged then.
func (r *run) refused(err error) bool {
	return err != nil && !r.accepted && (r.agreed || !r.several()) && !errors.As(err, new(*interrupt.Error)) && r.stuck() == nil
}

// unreached reports whether an error means that another process or a service does not respond.
func unreached(err error) bool {
	kind := errkind.KindOf(err)
	return kind == errkind.UnavailableError || kind == errkind.DeadlineExceededError
}

// stuck returns the error with which the watchdog ended the run, or nil.
func (r *run) stuck() error {
	if r.dog == nil {
		return nil
	}
	return r.dog.Err()
}

// firm returns a context that an interrupt does not end. The watchdog can end it.
func (r *run) firm(ctx context.Context) context.Context {
	if r.dog != nil {
		return r.firmly
	}
	return context.WithoutCancel(ctx)
}

// does reports the current activity to the watchdog and to the hooks.
func (r *run) does(what watchdog.Activity, name string) {
	r.doing = what
	if r.dog != nil {
		r.dog.Do(what, name)
	}
	for i := range r.hooks {
		if doing := r.hooks[i].Doing; doing != nil {
			doing(what, name)
		}
	}
}

// saving reports the result of a save to the watchdog.
func (r *run) saving(err error) {
	if r.dog == nil {
		return
	}
	r.dog.Trouble(err)
	if r.saved > 0 {
		r.dog.Saved(r.saved)
	}
	r.tellGoodput()
}
