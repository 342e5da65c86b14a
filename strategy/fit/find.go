package fit

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/tpustrategy/tpustrategy/strategy/checkpoint"
)

// find returns the point to resume from, or nil for a new run. All processes find the same.
func (v *saver) find(ctx context.Context, r *run) (*point, error) {
	found, err := v.choose(ctx, r)
	if found == nil || err != nil {
		return nil, err
	}
	p, err := parsePoint(found.Metadata())
	if err == nil {
		if name, differs := firstDifference(p.Settings, r.settings()); differs {
			err = &ResumeError{What: fmt.Sprintf("setting %q", name), Saved: p.Settings[name], Here: r.settings()[name],
				Hint: "give the settings that the run began with, or another directory"}
		}
	}
	if err != nil {
		_ = found.Close()
		of := &ResumeError{}
		if !errors.As(err, &of) {
			of = &ResumeError{Err: err}
		}
		of.Directory, of.Step = v.path, found.Step()
		return nil, of
	}
	p.checkpoint = found
	return p, nil
}

// steps opens the place, and returns the steps that process 0 finds there.
func (v *saver) steps(ctx context.Context, r *run) ([]int64, error) {
	if err := v.open(ctx, r); err != nil || !r.state.First() {
		return nil, err
	}
	steps, err := v.manager.Steps(ctx)
	if err == nil && len(steps) > 0 && !r.options.Resume {
		err = &ResumeError{Directory: v.path, Step: steps[len(steps)-1], What: "the directory has checkpoints of a run, and Options.Resume is not set",
			Hint: "set it to go on, or give another directory"}
	}
	return steps, err
}

// choose opens the last checkpoint that is intact, nil if there is none. Each process reads its
// share of a checkpoint to find that out, and all choose the same.
func (v *saver) choose(ctx context.Context, r *run) (*checkpoint.Checkpoint, error) {
	steps, err := v.steps(ctx, r)
	if err := r.agree(ctx, err, nil); err != nil {
		return nil, err
	}
	var passed []error
	last := int64(0) // of those that are passed over
	for i := len(steps) - 1; ; i-- {
		step := int64(-1)
		if i >= 0 {
			step = steps[i]
		}
		if r.several() {
			bytes, err := r.strategy.BroadcastBytes(ctx, "fit: the checkpoint to look at", binary.AppendVarint(nil, step))
			if err != nil {
				return nil, err
			}
			step, _ = binary.Varint(bytes)
		}
		if step < 0 {
			break
		}
		c, err := v.manager.Open(ctx, step)
		if err == nil {
			err = c.VerifyShare(ctx, r.strategy.Process(), max(r.strategy.NumProcesses(), 1))
		}
		damaged := errors.Is(err, checkpoint.ErrCorrupt) || errors.Is(err, checkpoint.ErrNone)
		if damaged {
			r.log.Warn("fit: passing over a damaged checkpoint", "error", err)
			passed, err = append(passed, err), nil
		}
		if err := r.agree(ctx, err, nil); err != nil {
			if c != nil {
				_ = c.Close()
			}
			return nil, err
		}
		bad := damaged
		if r.several() {
			if bad, err = r.strategy.AnyProcess(ctx, damaged); err != nil {
				return nil, err
			}
		}
		if !bad {
			return c, nil
		}
		v.clear, last = true, max(last, step)
		if c != nil {
			_ = c.Close()
		}
	}
	if v.clear {
		return nil, &ResumeError{Directory: v.path, Step: last, What: "every checkpoint is damaged", Err: errors.Join(passed...), Hint: "remove them to begin anew"}
	}
	return nil, nil
}
