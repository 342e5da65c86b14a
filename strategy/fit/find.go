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

// find returns the point to resume from, or nil for a new run. All processes find the same.
func (v *saver) find(ctx context.Context, r *run) (*point, error) {
	found, near, err := v.choose(ctx, r)
	if found == nil || err != nil {
		return nil, err
	}
	p, err := pointOf(found)
	if err != nil {
		err = notResumed(v.path, found.Step(), err, "", "")
	} else if name, differs := firstDifference(p.Settings, r.settings()); differs {
		err = notResumed(v.path, found.Step(), nil, "give the settings that the run began with, or another directory", "setting %q was %s when it was saved and is %s here",
			name, cmp.Or(p.Settings[name], "nothing"), cmp.Or(r.settings()[name], "nothing"))
	}
	if err != nil {
		_ = found.Close()
		return nil, err
	}
	p.checkpoint, p.near = found, near
	return p, nil
}

// steps returns the steps that process 0 finds at a place that is open.
func (v *saver) steps(ctx context.Context, r *run) ([]int64, error) {
	if !r.state.First() {
		return nil, nil
	}
	steps, err := v.manager.Steps(ctx)
	if err == nil && len(steps) > 0 && !r.options.Resume {
		err = notResumed(v.path, steps[len(steps)-1], nil, "set it to go on, or give another directory",
			"the directory has checkpoints of a run, and Options.Resume is not set")
	}
	return steps, err
}

// candidate is a checkpoint to look at.
type candidate struct {
	Step int64
	Near bool // it is on the hosts
}

// candidates opens the places, and returns what process 0 finds there, the last step first, on all
// processes.
func (v *saver) candidates(ctx context.Context, r *run) (all []candidate, err error) {
	err = v.open(ctx, r)
	var steps []int64
	if err == nil {
		steps, err = v.steps(ctx, r)
	}
	if err := r.agree(ctx, err, nil); err != nil {
		return nil, err
	}
	for _, step := range steps {
		all = append(all, candidate{Step: step})
	}
	if v.near != nil {
		if err := v.openNear(ctx, r); err != nil {
			return nil, err
		}
		steps, err := v.near.steps(ctx, r)
		if err := r.agree(ctx, err, nil); err != nil {
			return nil, err
		}
		for _, step := range steps {
			all = append(all, candidate{step, true})
		}
	}
	slices.SortStableFunc(all, func(a, b candidate) int { return cmp.Compare(b.Step, a.Step) })
	mine, err := json.Marshal(all)
	if err != nil {
		return nil, err
	}
	lists, err := r.gather(ctx, "the checkpoints to look at", mine)
	if err != nil {
		return nil, err
	}
	return all, json.Unmarshal(lists[0], &all)
}

// choose opens the last checkpoint that is intact, nil if there is none, and reports whether it is on
// the hosts. Each process reads its share of a checkpoint, and all processes choose the same. A
// checkpoint on the hosts that one process cannot read is passed over like a damaged one, because an
// earlier one, or one of the Checkpoint hook, can replace it.
func (v *saver) choose(ctx context.Context, r *run) (c *checkpoint.Checkpoint, near bool, err error) {
	all, err := v.candidates(ctx, r)
	if err != nil {
		return nil, false, err
	}
	var passed []error
	var last int64 // of those that are passed over
	for _, at := range all {
		of := v
		if at.Near {
			of = v.near
		}
		c, err := of.manager.Open(ctx, at.Step)
		if err == nil {
			if _, err = pointOf(c); !errors.Is(err, errPoint) {
				err = c.VerifyShare(ctx, r.strategy.Process(), r.strategy.NumProcesses())
			}
		}
		var damage error
		if errors.Is(err, checkpoint.ErrCorrupt) || errors.Is(err, checkpoint.ErrNone) || errors.Is(err, errPoint) || at.Near && err != nil && ctx.Err() == nil {
			damage, err = err, nil
		}
		err = r.agree(ctx, err, nil)
		var damages []error
		if err == nil {
			damages, err = r.errorsOfAll(ctx, fmt.Sprintf("fit: checkpoint %d", at.Step), damage)
		}
		if err == nil && len(damages) == 0 {
			return c, at.Near, nil
		}
		for _, damage := range damages {
			r.log.Warn("fit: passing over a damaged checkpoint", "step", at.Step, "error", damage)
		}
		passed = append(passed, damages...)
		if c != nil {
			_ = c.Close()
		}
		if err != nil {
			return nil, false, err
		}
		if of.clear = true; !at.Near {
			last = max(last, at.Step)
		}
	}
	if v.clear {
		return nil, false, notResumed(v.path, last, errors.Join(passed...), "remove them to begin anew", "every checkpoint is damaged")
	}
	return nil, false, nil
}
