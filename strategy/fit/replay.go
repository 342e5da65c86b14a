package fit

import (
	"context"
	"errors"

	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/strategy/replay"
	"github.com/tpustrategy/tpustrategy/strategy/watchdog"
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
	variables := append(r.strategy.Variables(r.train.Store()).All(), r.strategy.DistributedVariables()...)
	if state := r.train.MetricState(); state != nil {
		variables = append(variables, state)
	}
	err = replay.Step(ctx, r.strategy, r.state.step+1, distinct(variables), func(ctx context.Context) (err error) {
		r.does(watchdog.Launch, "replay")
		loss, err = r.train.Run(ctx, args...)
		r.does(watchdog.Result, "replay")
		return err
	})
	wrong := (*replay.Error)(nil)
	if err == nil {
		r.clean = r.state.step + 1
	} else if errors.As(err, &wrong) {
		r.agreed = true // all processes are told
	}
	return loss, err
}

// distinct leaves out what is in a list already.
func distinct(all []*strategy.Variable) (each []*strategy.Variable) {
	seen := map[*strategy.Variable]bool{}
	for _, v := range all {
		if !seen[v] {
			seen[v] = true
			each = append(each, v)
		}
	}
	return each
}
