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

// Replay runs every n-th step twice, from the same variables and the same batch, and compares the
// results on the devices bit by bit. It also compares the replicas' copies of mirrored variables.
// Package replay documents the detected errors and the cost.
//
// If devices differ, the run ends with a [*replay.Error] that names them. The run then saves no
// checkpoint and removes the [LocalCheckpoints] since the last successful replay. The exit code
// requests a restart from the last checkpoint. To replay the step before each save, use the
// interval of the [Checkpoint] hook.
func Replay(every Every) Hook {
	h := Hook{Name: "replay", replay: every}
	if every < 1 {
		h.err = optionError("hook replay", "give an interval of at least 1", "an interval of %d steps", every)
	}
	return h
}

// runStep runs the training step on a batch, twice if a replay is due. Before the first step it
// passes the compiled step to the hooks.
func (r *runner) runStep(ctx context.Context, args []any) (loss *strategy.Mirrored, err error) {
	if r.state.startTime.IsZero() {
		if err := r.passCompiledStep(ctx, args); err != nil {
			return nil, err
		}
	}
	if !r.replayEvery.isDue(r.state.step + 1) {
		return r.trainStep.Run(ctx, args...)
	}
	if _, err := r.trainStep.Compiled(ctx, args...); err != nil { // creates the step's variables
		return nil, err
	}
	err = replay.Step(ctx, r.strategy, r.state.step+1, r.deviceVariables(), func(ctx context.Context) (err error) {
		r.setActivity(watchdog.Launch, "replay")
		loss, err = r.trainStep.Run(ctx, args...)
		r.setActivity(watchdog.Result, "replay")
		return err
	})
	if err == nil {
		r.lastVerified = r.state.step + 1
	} else if errors.As(err, new(*replay.Error)) {
		r.inAgreement = true // replay.Step returns the error on all processes
	}
	return loss, err
}

// deviceVariables returns the variables of the run that are stored on devices, in the same order on
// all processes.
func (r *runner) deviceVariables() (all []*strategy.Variable) {
	group := checkpoint.StrategyGroup(r.strategy, r.trainStep.Store())
	if state := r.trainStep.MetricState(); state != nil {
		group = group.With(state)
	}
	for _, v := range group.Variables {
		if v, ok := v.(*strategy.Variable); ok {
			all = append(all, v)
		}
	}
	slices.SortStableFunc(all, func(a, b *strategy.Variable) int { return strings.Compare(a.Path(), b.Path()) })
	return all
}
