package accept

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/strategy/checkpoint"
)

// checkpoints trains, saves, trains on, restores onto another mesh, and trains the same steps again.
func checkpoints(ctx context.Context, w *work) (err error) {
	place := w.session.opts.Place
	if place == "" {
		if w.sys().NumProcesses() > 1 {
			w.finding("no checkpoint was saved: several hosts need --store with a place that all of them share")
			return nil
		}
		if place, err = os.MkdirTemp("", "tpustrategy-accept-"); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, os.RemoveAll(place)) }()
	}
	n := w.n()
	first := trainCases(n)[0].strategy
	last := first
	if n%2 == 0 && first.Replicas%2 == 0 {
		last.Replicas, last.LogicalDevices = first.Replicas/2, 2*n/first.Replicas
		if trainHidden%last.LogicalDevices == 0 {
			last.Variables = logical.Rules{logical.Match("hidden", logical.SplitInto(1, last.LogicalDevices))}
		}
	}
	d, err := checkpoint.OpenDirectory(filepath.Join(place, "tpustrategy-accept"), checkpoint.Options{Keep: 1, TakeOver: true})
	if err != nil {
		return err
	}
	want, err := w.saveAndGoOn(ctx, first, d)
	if err != nil {
		return fmt.Errorf("saving: %w", err)
	}
	got, err := w.restoreAndGoOn(ctx, last, d)
	if err != nil {
		return fmt.Errorf("restoring: %w", err)
	}
	for i := range want {
		off := (got[i] - want[i]) / want[i]
		if limit := Tolerance(w.sys().Platform(), "float32"); !(max(off, -off) <= limit) {
			w.fail("after the restore the loss of step %d is %g, and %g was before", i, got[i], want[i])
		}
	}
	if w.sys().Process() == 0 {
		if err := os.RemoveAll(d.Path()); err != nil {
			return err
		}
	}
	return w.session.exchange.Barrier(ctx, "accept checkpoint removed")
}

// checkpointSteps are taken before the save, and again after it.
const checkpointSteps = 3

func (w *work) saveAndGoOn(ctx context.Context, opts strategy.Options, d *checkpoint.Directory) (losses []float64, err error) {
	s, err := w.strategy(opts)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	step, err := trainingStep(s, "float32")
	if err != nil {
		return nil, err
	}
	for i := range checkpointSteps {
		if _, err := trainOn(ctx, step, i); err != nil {
			return nil, err
		}
	}
	w.at("the save")
	group := checkpoint.Strategy(s, step.Store())
	if s.Process() == 0 {
		err = d.Save(ctx, checkpointSteps, group, checkpoint.SaveOptions{Metadata: map[string]string{"accept": "1"}})
	} else {
		err = checkpoint.Follow(ctx, group)
	}
	if err != nil {
		return nil, err
	}
	if err := s.Barrier(ctx, "accept saved"); err != nil {
		return nil, err
	}
	for i := range checkpointSteps {
		value, err := trainOn(ctx, step, checkpointSteps+i)
		if err != nil {
			return nil, err
		}
		losses = append(losses, value)
	}
	return losses, nil
}

func (w *work) restoreAndGoOn(ctx context.Context, opts strategy.Options, d *checkpoint.Directory) (losses []float64, err error) {
	s, err := w.strategy(opts)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	step, err := trainingStep(s, "float32")
	if err != nil {
		return nil, err
	}
	c, passed, err := d.LatestIntact(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	for _, p := range passed {
		w.fail("a checkpoint is not intact: %v", p)
	}
	if c.Step() != checkpointSteps || c.Metadata()["accept"] != "1" {
		w.fail("the checkpoint is of step %d with metadata %v", c.Step(), c.Metadata())
	}
	w.at("the restore")
	if err := c.Restore(ctx, checkpoint.Strategy(s, step.Store()), checkpoint.RestoreOptions{}); err != nil {
		return nil, err
	}
	for i := range checkpointSteps {
		value, err := trainOn(ctx, step, checkpointSteps+i)
		if err != nil {
			return nil, err
		}
		losses = append(losses, value)
	}
	return losses, nil
}
