package job

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/gomlx/gomlx/ml/model"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/storage"
	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/strategy/checkpoint"
	"github.com/tpustrategy/tpustrategy/strategy/interrupt"
)

// Again returns the error of a run that ctx ended: where there is a place for checkpoints, one whose
// exit code asks for a restart, also if the run had not come to its first step. It returns other
// errors, and nil, as they are.
func Again(ctx context.Context, cfg Config, result Result, err error) error {
	var known *interrupt.Error
	if err == nil || cfg.Out == "" || ctx.Err() == nil || errors.As(err, &known) || !errors.Is(err, ctx.Err()) && !errors.Is(err, context.Cause(ctx)) {
		return err
	}
	return &interrupt.Error{Step: int64(result.Steps), Notice: interrupt.Of(ctx)}
}

// checkpoints are those of a run. Every host saves what its devices hold. A nil one saves nothing.
type checkpoints struct {
	strat    *strategy.TPUStrategy
	vars     *model.Store
	place    storage.Store
	manager  *checkpoint.Manager
	settings string
	saved    int
}

// settingsKey is where a checkpoint has the settings of its run, in one line.
const settingsKey = "digits.settings"

// openCheckpoints opens the folder or the store of the configuration.
func openCheckpoints(ctx context.Context, cfg Config, strat *strategy.TPUStrategy, vars *model.Store, settings string) (*checkpoints, error) {
	if cfg.Out == "" {
		return nil, nil
	}
	place, err := storage.Open(ctx, cfg.Out)
	if err != nil {
		return nil, &UsageError{Flag: "out", Reason: err.Error(), Err: err}
	}
	manager, err := checkpoint.NewManager(ctx, place, checkpoint.ManagerOptions{Strategy: strat, Retention: checkpoint.Retention{Last: 2}})
	if err != nil {
		return nil, errors.Join(err, place.Close())
	}
	return &checkpoints{strat: strat, vars: vars, place: place, manager: manager, settings: settings}, nil
}

// resume restores the last checkpoint that is intact, and returns its step: 0 if there is none. All
// hosts go on from the one that the first of them finds.
func (c *checkpoints) resume(ctx context.Context) (step int, err error) {
	if c == nil {
		return 0, nil
	}
	found := ""
	if c.strat.Process() == 0 {
		if found, err = c.find(ctx); err != nil {
			found = "error: " + err.Error()
		}
	}
	told, err2 := c.strat.BroadcastBytes(ctx, "the checkpoint to go on from", []byte(found))
	if err = errors.Join(err, err2); err != nil {
		return 0, err
	}
	if reason, failed := strings.CutPrefix(string(told), "error: "); failed {
		return 0, &errkind.Fault{Op: "job: the first host", Reason: reason, Class: errkind.UnavailableError}
	}
	if step, err = strconv.Atoi(string(told)); err != nil || step == 0 {
		return step, err
	}
	last, err := c.manager.Open(ctx, int64(step))
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, last.Close()) }()
	if was := last.Metadata()[settingsKey]; was != c.settings {
		return 0, &UsageError{Flag: "out", Reason: fmt.Sprintf("%s has a run of other settings (%s, here %s); give those, or another place", c.place, was, c.settings)}
	}
	c.saved = step
	return step, last.Restore(ctx, checkpoint.Strategy(c.strat, c.vars), checkpoint.RestoreOptions{})
}

// find returns the step of the last intact checkpoint as text, and removes damaged ones after it.
func (c *checkpoints) find(ctx context.Context) (string, error) {
	last, passed, err := c.manager.LatestIntact(ctx)
	if errors.Is(err, checkpoint.ErrNone) && len(passed) == 0 {
		return "0", nil
	}
	if err != nil {
		return "", errors.Join(err, errors.Join(passed...))
	}
	defer last.Close()
	if len(passed) > 0 {
		err = c.manager.RemoveAfter(ctx, last.Step())
	}
	return strconv.FormatInt(last.Step(), 10), err
}

// save saves after a step. It waits only until the variables are copied off the devices.
func (c *checkpoints) save(ctx context.Context, step int) error {
	if c == nil || step <= c.saved {
		return nil
	}
	c.saved = step
	return c.manager.Save(ctx, int64(step), checkpoint.Strategy(c.strat, c.vars), checkpoint.SaveOptions{Metadata: map[string]string{settingsKey: c.settings}})
}

// close waits for the last save.
func (c *checkpoints) close() error {
	if c == nil {
		return nil
	}
	return errors.Join(c.manager.Close(), c.place.Close())
}
