package fit

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/tpustrategy/tpustrategy/strategy/checkpoint"
)

// findSnapshot returns the saved state to resume from, or nil for a new run. All processes return
// the same step.
func (v *saver) findSnapshot(ctx context.Context, r *runner) (*savedState, error) {
	found, isLocal, err := v.openLatestIntact(ctx, r)
	if found == nil || err != nil {
		return nil, err
	}
	p, err := readSavedState(found)
	if err != nil {
		err = resumeError(v.path, found.Step(), err, "", "")
	} else if name, differs := differentSetting(p.Settings, r.settings()); differs {
		err = resumeError(v.path, found.Step(), nil, "give the settings that the run began with, or another directory",
			"setting %q was %s when it was saved and is %s here",
			name, cmp.Or(p.Settings[name], "nothing"), cmp.Or(r.settings()[name], "nothing"))
	}
	if err != nil {
		_ = found.Close()
		return nil, err
	}
	p.checkpoint, p.isLocal = found, isLocal
	return p, nil
}

// listSteps returns the steps of the checkpoints on process 0, and nil on the other processes. It
// returns an error if there are checkpoints and Options.Resume is not set.
func (v *saver) listSteps(ctx context.Context, r *runner) ([]int64, error) {
	if !r.state.IsChief() {
		return nil, nil
	}
	steps, err := v.manager.Steps(ctx)
	if err == nil && len(steps) > 0 && !r.options.Resume {
		err = resumeError(v.path, steps[len(steps)-1], nil, "set it to resume, or give another directory",
			"the directory has checkpoints of a run, and Options.Resume is not set")
	}
	return steps, err
}

type candidate struct {
	Step  int64
	Local bool
}

// openAll opens the directory of the checkpoints and, if the run has them, the local checkpoints.
func (v *saver) openAll(ctx context.Context, r *runner) error {
	if err := r.exchangeVotes(ctx, v.open(ctx, r), nil); err != nil {
		return err
	}
	if v.local == nil {
		return nil
	}
	return v.openLocal(ctx, r)
}

// listCandidates lists the checkpoints, latest first. All processes return the list of process 0.
func (v *saver) listCandidates(ctx context.Context, r *runner) (all []candidate, err error) {
	for _, source := range []*saver{v, v.local} {
		if source == nil {
			continue
		}
		steps, err := source.listSteps(ctx, r)
		if err := r.exchangeVotes(ctx, err, nil); err != nil {
			return nil, err
		}
		for _, step := range steps {
			all = append(all, candidate{step, source != v})
		}
	}
	slices.SortStableFunc(all, func(a, b candidate) int { return cmp.Compare(b.Step, a.Step) })
	message, err := json.Marshal(all)
	if err != nil {
		return nil, err
	}
	messages, err := r.gather(ctx, "the checkpoints to look at", message)
	if err != nil {
		return nil, err
	}
	all = nil
	return all, json.Unmarshal(messages[0], &all)
}

// maxListings limits how often openLatestIntact lists the checkpoints again because another run has
// changed them.
const maxListings = 100

// openLatestIntact opens the latest checkpoint that is not damaged, or returns nil if there is
// none. Each process verifies its part of a checkpoint, and all processes choose the same
// checkpoint. A local checkpoint that a process cannot read counts as damaged, because an earlier
// checkpoint can replace it.
//
// Another run can save and remove checkpoints at the same time. A removed checkpoint does not count
// as damaged; instead, the checkpoints are listed again.
func (v *saver) openLatestIntact(ctx context.Context, r *runner) (c *checkpoint.Checkpoint, isLocal bool, err error) {
	if err := v.openAll(ctx, r); err != nil {
		return nil, false, err
	}
	damaged := map[candidate][]error{}
	for range maxListings {
		all, err := v.listCandidates(ctx, r)
		if err != nil {
			return nil, false, err
		}
		c, isLocal, changed, err := v.openFirstIntact(ctx, r, all, damaged)
		if c != nil || err != nil {
			return c, isLocal, err
		}
		if changed {
			continue
		}
		if len(all) == 0 || !v.removeLater {
			return nil, false, nil
		}
		var skipped []error
		last := int64(0)
		for _, at := range all {
			skipped = append(skipped, damaged[at]...)
			if !at.Local {
				last = max(last, at.Step)
			}
		}
		return nil, false, resumeError(v.path, last, errors.Join(skipped...), "remove them to start a new run",
			"every checkpoint is damaged")
	}
	return nil, false, resumeError(v.path, 0, nil, "end the other run",
		"another run removed each checkpoint before it was read, %d times", maxListings)
}

// openFirstIntact opens the first candidate that is not damaged, on all processes. It skips the
// candidates in damaged, and adds further damaged candidates with their errors. changed reports
// that the list of checkpoints has changed in the meantime.
func (v *saver) openFirstIntact(ctx context.Context, r *runner, candidates []candidate,
	damaged map[candidate][]error) (c *checkpoint.Checkpoint, isLocal, changed bool, err error) {
	for _, at := range candidates {
		source := v
		if at.Local {
			source = v.local
		}
		if damaged[at] == nil {
			c, errs, err := source.openIntact(ctx, r, at)
			if err != nil || c != nil {
				return c, at.Local, false, err
			}
			if now, err := v.listCandidates(ctx, r); err != nil || !slices.Equal(now, candidates) {
				return nil, false, true, err
			}
			for _, err := range errs {
				r.log.Warn("fit: skipping a damaged checkpoint", "step", at.Step, "error", err)
			}
			damaged[at] = errs
		}
		source.removeLater = true
	}
	return nil, false, false, nil
}

// openIntact opens a checkpoint on all processes. If the checkpoint is damaged or was removed, c is
// nil and damages contains the errors of the processes. err is any other error.
func (v *saver) openIntact(ctx context.Context, r *runner, at candidate) (c *checkpoint.Checkpoint, damages []error,
	err error) {
	c, err = v.manager.Open(ctx, at.Step)
	if err == nil {
		if _, err = readSavedState(c); !errors.Is(err, errSavedState) {
			err = c.VerifyShard(ctx, r.strategy.Process(), r.strategy.NumProcesses())
		}
	}
	var damage error
	if errors.Is(err, checkpoint.ErrCorrupt) || errors.Is(err, checkpoint.ErrNotFound) ||
		errors.Is(err, errSavedState) || at.Local && err != nil && ctx.Err() == nil {
		damage, err = err, nil
	}
	if err = r.exchangeVotes(ctx, err, nil); err == nil {
		damages, err = r.gatherErrors(ctx, fmt.Sprintf("fit: checkpoint %d", at.Step), damage)
	}
	if err == nil && len(damages) == 0 {
		return c, nil, nil
	}
	_ = c.Close()
	return nil, damages, err
}
