package fit

import (
	"log/slog"
	"path/filepath"
	"slices"

	"github.com/tpustrategy/tpustrategy/errkind"
)

// Options configures a run. The zero value runs one pass over the data.
type Options struct {
	// Steps is the number of steps of the whole run, including the steps before a resume; 0 ends
	// the run with the data. If a resumed run has no step left, it logs a warning, reports the
	// reason in Result.StopReason, and evaluates the model.
	Steps int64
	// Epochs is the number of passes over the data; 0 means one. A shuffled dataset has another
	// order in each pass. Epochs and Steps must not both be set. Data that ends before Steps is an
	// error.
	Epochs int64
	// Every is the interval of the records; 0 means 10. The loss and the metrics of train.Options
	// are read after step 1, after each step that is a multiple of Every, and after the last step.
	// Reading waits for the step and resets the metrics, so each record covers the rows since the
	// previous record. Between records the loop runs ahead of the devices, by as many steps as the
	// strategy allows.
	Every Every
	// Resume resumes from the last checkpoint of the [Checkpoint] hook that is not damaged, and
	// starts a new run if there is no checkpoint. Without Resume, a directory that contains
	// checkpoints is an error.
	Resume bool
	// Settings are saved with each checkpoint, for example the seed of the data's order. A resume
	// with other settings returns an [ErrResume] that names the setting. The initial seed of the
	// step's store is always included.
	Settings map[string]string
	// Logger receives warnings, for example about a full disk; nil discards them.
	Logger *slog.Logger
}

const defaultEvery = 10

// Result describes a run. If Run returns an error, Result describes the completed part of the run.
type Result struct {
	// Step is the number of steps of the whole run, ResumedFrom is the number of steps before this
	// call of Run, and StepsRun is the number of steps of this call.
	Step, ResumedFrom, StepsRun int64
	// Rows is the number of rows of the batches of this call, over all replicas, and Epochs is the
	// number of passes over the data that the whole run has begun.
	Rows, Epochs int64
	// Metrics are the last values of all metrics that this call read, the loss first. If a resumed
	// run had no step left, they are the values in the checkpoint and the values of a new
	// evaluation.
	Metrics []Metric
	// Seconds is the duration of this call. TrainSeconds is the time from the launch of the first
	// step to the end of the last step, including the time of the hooks.
	Seconds, TrainSeconds float64
	// StopReason is the reason that a hook passed to [State.Stop], or the reason why a resumed run had
	// no step left. It is empty if the run completed all steps.
	StopReason string
}

// Value returns the last value of a metric and reports whether the metric was measured.
func (r Result) Value(name string) (value float64, measured bool) { return findMetric(r.Metrics, name) }

// validateOptions returns an error for invalid options or hooks. known are the metric names of the
// step.
func validateOptions(o Options, hooks []Hook, known []string) error {
	switch {
	case o.Steps < 0:
		return optionError("option Steps", "give at least 1, or 0 for a pass over the data", "%d", o.Steps)
	case o.Epochs < 0:
		return optionError("option Epochs", "give at least 1, or 0 for one", "%d", o.Epochs)
	case o.Steps > 0 && o.Epochs > 0:
		return optionError("option Epochs", "give one, and set the other to 0",
			"both %d steps and %d passes over the data are set", o.Steps, o.Epochs)
	case o.Every < 0:
		return optionError("option Every", "give at least 1, or 0 for 10", "%d", o.Every)
	}
	files, names := map[string]string{}, map[string]bool{}
	savers, watches := 0, 0
	for i := range hooks {
		h := &hooks[i]
		if h.err != nil {
			return h.err
		}
		if h.Every < 0 {
			return optionError("hook "+h.Name, "give at least 1", "an interval of %d steps", h.Every)
		}
		if h.saver != nil {
			if savers++; savers > 1 {
				return optionError("hook "+h.Name, "keep one of them; a run resumes from it",
					"there are two Checkpoint hooks")
			}
		}
		if h.watch != nil {
			if watches++; watches > 1 {
				return optionError("hook "+h.Name, "keep one of them", "there are two Watch hooks")
			}
		}
		if h.Save != nil || h.Load != nil {
			if h.Name == "" || names[h.Name] {
				return optionError("hook "+h.Name, "set its Name", "another hook that saves its state has the same name")
			}
			names[h.Name] = true
		}
		for _, path := range h.Files {
			full, err := filepath.Abs(path)
			if err != nil {
				return &errkind.Fault{Op: "fit: hook " + h.Name, Subject: path, Err: err}
			}
			if other, taken := files[full]; taken {
				return optionError("hook "+h.Name, "give each hook its own path", "hook %s writes %s, too", other, path)
			}
			files[full] = h.Name
		}
	}
	if o.Resume && savers == 0 {
		return optionError("option Resume", "add the hook Checkpoint, with the directory of the run",
			"there are no checkpoints to resume from")
	}
	return checkRequiredMetrics(hooks, known)
}

// checkRequiredMetrics returns an error if a hook requires a metric that nothing publishes. known
// are the metric names of the step.
func checkRequiredMetrics(hooks []Hook, known []string) error {
	for i := range hooks {
		if hooks[i].publishesAny() {
			return nil // the hook may publish any metric
		}
		known = append(known, hooks[i].Publishes...)
	}
	for i := range hooks {
		for _, name := range hooks[i].Requires {
			if !slices.Contains(known, name) {
				return missingMetricError(hooks[i].Name, name, known)
			}
		}
	}
	return nil
}
