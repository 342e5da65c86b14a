package fit

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/tpustrategy/tpustrategy/fit/replay"
	"github.com/tpustrategy/tpustrategy/fit/watchdog"
	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/strategy/checkpoint"
)

// Replay takes each n-th step twice, from the same variables and the same batch, and compares to the
// bit what it leaves on the devices, and what the replicas hold that should agree; see package
// replay for what that finds and costs. Devices that differ end the run by a [*replay.Error], which
// names them, and nothing is saved any more. Its exit code asks for a start from the last checkpoint.
// With the interval of the [Checkpoint] hook, the step before each save is replayed. What was saved on
// the hosts ([Near]) since the last step that was replayed without a difference is removed.
func Replay(every Every) Hook {
	h := Hook{Name: "replay", replay: every}
	if every < 1 {
		h.wrong = option("hook replay", "give an interval of at least 1", "an interval of %d steps", every)
	}
	return h
}

// take takes a step on a batch, twice if it is to be replayed, and tells of the first one before.
func (r *run) take(ctx context.Context, args []any) (loss *strategy.Mirrored, err error) {
	if r.state.began.IsZero() {
		if err := r.describe(ctx, args); err != nil {
			return nil, err
		}
	}
	if !r.replays.due(r.state.step + 1) {
		return r.train.Run(ctx, args...)
	}
	if _, err := r.train.Compiled(ctx, args...); err != nil { // which makes its variables known
		return nil, err
	}
	err = replay.Step(ctx, r.strategy, r.state.step+1, r.onDevices(), func(ctx context.Context) (err error) {
		r.does(watchdog.Launch, "replay")
		loss, err = r.train.Run(ctx, args...)
		r.does(watchdog.Result, "replay")
		return err
	})
	if err == nil {
		r.clean = r.state.step + 1
	} else if errors.As(err, new(*replay.Error)) {
		r.agreed = true // all processes are told
	}
	return loss, err
}

// onDevices are the run's variables that are on the devices, in one order on all processes.
func (r *run) onDevices() (all []*strategy.Variable) {
	g := checkpoint.Strategy(r.strategy, r.train.Store())
	if state := r.train.MetricState(); state != nil {
		g = g.With(state)
	}
	for _, v := range g.Variables {
		if v, ok := v.(*strategy.Variable); ok {
			all = append(all, v)
		}
	}
	slices.SortStableFunc(all, func(a, b *strategy.Variable) int { return strings.Compare(a.Path(), b.Path()) })
	return all
}
