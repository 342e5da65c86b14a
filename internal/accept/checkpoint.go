package accept

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/storage"
	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/strategy/checkpoint"
	"github.com/tpustrategy/tpustrategy/strategy/train"
)

// checkpointPrefix is the prefix of the names of all stored checkpoint objects.
const checkpointPrefix = "tpustrategy-accept/"

// checkCheckpoint tests that training continues identically from a checkpoint that is restored onto
// another mesh. Each host saves its own shards.
func checkCheckpoint(ctx context.Context, w *partRun) (err error) {
	place := w.session.opts.Store
	if place == "" {
		if w.system().NumProcesses() > 1 {
			w.addFinding("no checkpoint was saved: several hosts need --store with a folder or bucket that all of them share")
			return nil
		}
		if place, err = os.MkdirTemp("", "tpustrategy-accept-"); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, os.RemoveAll(place)) }()
	}
	w.setActivity("opening %s", place)
	whole, err := storage.Open(ctx, place)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, whole.Close()) }()
	store := storage.Sub(whole, strings.TrimSuffix(checkpointPrefix, "/"))
	w.addFact("place", "%s", whole)
	n := w.numDevices()
	first := trainCases(n, 1)[0].strategy
	last := first
	if n%2 == 0 && first.Replicas%2 == 0 {
		last.Replicas, last.LogicalDevices = first.Replicas/2, 2*n/first.Replicas
		if trainHidden%last.LogicalDevices == 0 {
			last.Variables = logical.Rules{logical.Match("hidden", logical.SplitInto(1, last.LogicalDevices))}
		}
	}
	want, err := w.continueTraining(ctx, first, store, w.trainAndSave)
	if err != nil {
		return fmt.Errorf("saving: %w", err)
	}
	got, err := w.continueTraining(ctx, last, store, w.restoreCheckpoint)
	if err != nil {
		return fmt.Errorf("restoring: %w", err)
	}
	for i := range want {
		off := (got[i] - want[i]) / want[i]
		if limit := Tolerance(w.system().Platform(), "float32"); !(max(off, -off) <= limit) {
			w.addFailure("after the restore the loss of step %d is %g, and %g was before", i, got[i], want[i])
		}
	}
	if err := w.session.exchange.Barrier(ctx, "accept checkpoint read"); err != nil || w.system().Process() > 0 {
		return err
	}
	return w.removeCheckpoints(ctx, whole)
}

func (w *partRun) removeCheckpoints(ctx context.Context, whole storage.Store) error {
	w.setActivity("removing what was saved")
	left, err := whole.List(ctx, checkpointPrefix)
	if err != nil {
		return err
	}
	w.addFact("objects", "%d", len(left))
	for _, object := range left {
		if err := whole.Remove(ctx, object.Name); err != nil {
			return err
		}
	}
	return nil
}

// checkpointSteps is the number of training steps before the save, and also the number after it.
const checkpointSteps = 3

// continueTraining calls reach, which must leave the model in the state of the saved checkpoint,
// either by training or by restoring. Then continueTraining trains checkpointSteps more steps and
// returns their losses.
func (w *partRun) continueTraining(ctx context.Context, opts strategy.Options, store storage.Store,
	reach func(context.Context, *train.Step, *checkpoint.Manager) error) (losses []float64, err error) {
	s, err := w.newStrategy(opts)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	step, err := trainingStep(s, "float32")
	if err != nil {
		return nil, err
	}
	m, err := checkpoint.NewManager(ctx, store, checkpoint.ManagerOptions{Strategy: s, TakeOver: true,
		PartTimeout: w.session.opts.timeLimit(w.part)})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, m.Close()) }()
	if err := reach(ctx, step, m); err != nil {
		return nil, err
	}
	for i := range checkpointSteps {
		value, err := runTrainStep(ctx, step, checkpointSteps+i)
		if err != nil {
			return nil, err
		}
		losses = append(losses, value)
	}
	return losses, nil
}

func (w *partRun) trainAndSave(ctx context.Context, step *train.Step, m *checkpoint.Manager) error {
	for i := range checkpointSteps {
		if _, err := runTrainStep(ctx, step, i); err != nil {
			return err
		}
	}
	w.setActivity("the save")
	s, began := step.Strategy(), time.Now()
	if err := m.Save(ctx, checkpointSteps, checkpoint.StrategyGroup(s, step.Store()),
		checkpoint.SaveOptions{Metadata: map[string]string{"accept": "1"}}); err != nil {
		return err
	}
	blocked := time.Since(began)
	if err := m.Wait(ctx); err != nil {
		return err
	}
	w.addMeasurement(Measurement{Name: "save, step blocked", Value: blocked.Seconds() * 1e3, Unit: "ms"})
	w.addMeasurement(Measurement{Name: "save, until it is whole", Value: time.Since(began).Seconds() * 1e3, Unit: "ms"})
	return s.Barrier(ctx, "accept saved")
}

func (w *partRun) restoreCheckpoint(ctx context.Context, step *train.Step, m *checkpoint.Manager) (err error) {
	began := time.Now()
	c, passed, err := m.LatestIntact(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	for _, p := range passed {
		w.addFailure("a checkpoint is not intact: %v", p)
	}
	if c.Step() != checkpointSteps || c.Metadata()["accept"] != "1" {
		w.addFailure("the checkpoint is of step %d with metadata %v", c.Step(), c.Metadata())
	}
	w.setActivity("the restore")
	if err := c.Restore(ctx, checkpoint.StrategyGroup(step.Strategy(), step.Store()),
		checkpoint.RestoreOptions{}); err != nil {
		return err
	}
	w.addMeasurement(Measurement{Name: "restore, checked", Value: time.Since(began).Seconds() * 1e3, Unit: "ms"})
	return nil
}
