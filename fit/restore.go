package fit

import (
	"context"
	"encoding/binary"
	"errors"
	"slices"

	"github.com/gomlx/gomlx/core/tensors"

	"github.com/tpustrategy/tpustrategy/strategy/checkpoint"
)

// restore restores the variables of the step. It first traces the step with the next batch, so that
// all variables exist and can be compared with the checkpoint.
func (r *runner) restore(ctx context.Context, saved *savedState) error {
	wrong := func(what string, err error) error {
		return resumeError(r.saver.path, saved.Step, err,
			"give the model and the optimizer that the run began with, or another directory", "%s", what)
	}
	next, err := r.prefetchBatch(ctx)
	if err != nil {
		return err
	}
	if next != nil {
		if r.options.Steps == 0 || r.state.step < r.options.Steps {
			_, err = r.trainStep.Compiled(ctx, next.args...)
		} else { // no step is left, so no program is compiled
			_, err = r.trainStep.Lowered(ctx, next.args...)
		}
		if err != nil {
			return r.stepError("compiling the step", saved.Step+1, r.convertInterrupt(ctx, err))
		}
	}
	g := r.saver.variables(r)
	if next != nil && !r.saver.opts.Restore.AllowUnexpected {
		if extra := unexpectedVariables(g, saved.checkpoint); len(extra) > 0 {
			return wrong("its variables are not the step's", &checkpoint.MismatchError{Unexpected: extra})
		}
	}
	if err := saved.checkpoint.Restore(ctx, g, r.saver.opts.Restore); err != nil {
		if ctx.Err() != nil && errors.Is(err, ctx.Err()) {
			return err
		}
		return wrong("its variables are not restored", err)
	}
	return r.restoreMetricSums(ctx, saved)
}

// metricSums returns the accumulated sums of the step's metrics as little-endian float64. All
// processes must call it.
func (r *runner) metricSums(ctx context.Context) ([]byte, error) {
	state := r.trainStep.MetricState()
	if state == nil {
		return nil, nil
	}
	value, err := state.Value(ctx)
	if err != nil {
		return nil, err
	}
	flat, err := tensors.CopyFlatData[float64](value)
	if err != nil {
		return nil, err
	}
	return binary.Append(nil, binary.LittleEndian, flat)
}

// restoreMetricSums restores the accumulated sums of the step's metrics. If the step has other
// metrics than the checkpoint, it logs a warning instead.
func (r *runner) restoreMetricSums(ctx context.Context, saved *savedState) error {
	state := r.trainStep.MetricState()
	if state == nil && saved.Metrics == nil {
		return nil
	}
	if state == nil || !slices.Equal(saved.Metrics, r.trainStep.MetricNames()) ||
		len(saved.Sums) != 8*state.Shape().Size() {
		r.log.Warn("fit: the sums of the metrics since the last record are not restored, as the step has other metrics",
			"saved", saved.Metrics, "here", r.trainStep.MetricNames())
		return nil
	}
	flat := make([]float64, len(saved.Sums)/8)
	if _, err := binary.Decode(saved.Sums, binary.LittleEndian, flat); err != nil {
		return err
	}
	return state.RestoreValue(ctx, tensors.FromFlatDataAndDimensions(flat, state.Shape().Dimensions...))
}

// unexpectedVariables returns the trainable variables of a checkpoint that the step does not have.
// It ignores other variables, which may be created later, for example by an evaluation.
func unexpectedVariables(g checkpoint.Group, c *checkpoint.Checkpoint) (extra []string) {
	has := map[string]bool{}
	for _, v := range g.Variables {
		has[v.Path()] = true
	}
	for _, info := range c.Variables() {
		if info.Trainable && !has[info.Path] {
			extra = append(extra, info.Path)
		}
	}
	return extra
}
