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

// Watch watches the run: a step, an input, a save, a hook or a compilation that does not end is
// reported, the host that all others wait for is named on all of them, and the run ends in place of
// waiting for ever. See package watchdog.
//
//	fit.Watch(watchdog.Options{Place: "run", Exit: os.Exit})
//
// Place is a folder that all processes share, or the URL of a store; the records of the processes
// in it are what `tpustrategy watch` shows. Host, Hosts and Run need not be given: they are the
// strategy's processes, and an id on which these agree at the start. Where Run is given, a process
// that never comes to that is named, too. The reports go to Options.Logger if the watchdog has no
// Logger of its own.
//
// A run that the watchdog ends returns an error that is a [*watchdog.StuckError]; its exit code
// (interrupt.Code) is [watchdog.ExitCode]. With several processes no checkpoint is saved then, as
// that takes all of them. What takes no notice of its context, such as a launch on a TPU, cannot be
// ended: where Run does not return, the watchdog's Exit ends the process. Where a launch or an
// exchange fails, as it may when another process has died, Run waits up to twice Options.Floor until
// it is known which one, and its error names that and has the same code.
//
// Where the environment names a file by TPUSTRATEGY_GOODPUT, process 0 keeps a line in it that says
// where the run's time has gone, as of the last save, and of the end: the scripts of
// `tpustrategy launch` show it.
//
// It adds less than a microsecond to a step, and no allocation.
func Watch(o watchdog.Options) Hook { return Hook{Name: "watch", watch: &o} }

// startWatch starts the watchdog of a run that has one, and returns the context of the run.
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

// startTime is how long the processes may be apart when their runs begin: watchdog.Options.First.
const startTime = 30 * time.Minute

// blame waits, where what all processes do together has failed, until the watchdog knows because of
// which of them: the plugin's error names none. The others wait, too, and see the same.
func (r *run) blame(err error, doing watchdog.Activity) {
	if r.dog == nil || err == nil || !r.several() || r.agreed || !doing.Together() && !unreached(err) || errors.As(err, new(*interrupt.Error)) {
		return
	}
	r.does(watchdog.Exchange, "fit: who is lost")
	limited, cancel := context.WithTimeout(context.Background(), 2*cmp.Or(r.watch.Floor, defaultFloor))
	defer cancel()
	r.lost = r.suspected(limited)
}

// suspected waits until the watchdog knows who is lost, or ctx ends; it returns nil then.
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

// defaultFloor is that of watchdog.Options.
const defaultFloor = 5 * time.Second

// endWatch ends the watchdog with the run's error, which it returns: with who is stuck.
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

// refused reports whether all processes have refused to begin the run, such as a resume with other
// settings, so that the records of its earlier lives stay as they are.
func (r *run) refused(err error) bool {
	return err != nil && !r.accepted && (r.agreed || !r.several()) && !errors.As(err, new(*interrupt.Error)) && r.stuck() == nil
}

// unreached reports whether an error says that another process, or a service, does not answer.
func unreached(err error) bool {
	kind := errkind.Of(err)
	return kind == errkind.UnavailableError || kind == errkind.DeadlineExceededError
}

// stuck returns the error with which the watchdog has ended the run, or nil.
func (r *run) stuck() error {
	if r.dog == nil {
		return nil
	}
	return r.dog.Err()
}

// firm is the context of what an interrupt does not end. The watchdog does.
func (r *run) firm(ctx context.Context) context.Context {
	if r.dog != nil {
		return r.firmly
	}
	return context.WithoutCancel(ctx)
}

// does tells the watchdog, and the hooks that ask, what the run does.
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

// saving tells the watchdog what came of a save.
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
