package fit

import (
	"log/slog"
	"path/filepath"
	"slices"

	"github.com/tpustrategy/tpustrategy/errkind"
)

// Options configure a run. The zero value takes one pass over the data.
type Options struct {
	// Steps is the number of steps of the whole run, including the steps before a resume; 0 ends the run
	// with the data. A resumed run that has no step left to take reports that as a warning and in
	// Result.Stopped, and evaluates the model.
	Steps int64
	// Epochs is the number of passes over the data, each in another order if the dataset is
	// shuffled; 0 is one. Give it or Steps: data that ends before Steps is an error.
	Epochs int64
	// Every is the interval of the records: the loss, and the metrics of train.Options, are read
	// after step 1, after each step that Every divides, and after the last; 0 is 10. The metrics
	// are reset then, so that each record has those since the record before. Reading waits for the
	// step. Between the
	// records the loop runs ahead of the devices, by as many steps as the strategy lets it.
	Every Every
	// Resume goes on from the last checkpoint of the [Checkpoint] hook that is not damaged, and
	// starts a new run if there is none. Without Resume a directory that has checkpoints is
	// refused.
	Resume bool
	// Settings are saved with each checkpoint, such as the seed of the data's order. A resume with
	// other settings is refused with [ErrResume], by its name. The initial seed of the step's store
	// is among them without being given.
	Settings map[string]string
	// Logger receives warnings, such as that of a full disk; nil discards them.
	Logger *slog.Logger
}

// defaultEvery is the interval of the records.
const defaultEvery = 10

// Result says what came of a run. It is filled in as far as the run came, also if there is an
// error.
type Result struct {
	// Step is the number of steps of the whole run, Resumed the number of those before this call of
	// Run, and Taken that of the steps that this call took.
	Step, Resumed, Taken int64
	// Rows is the number of rows of the batches that this call took, on all replicas, and Passes
	// the number of passes over the data that were begun.
	Rows, Passes int64
	// Metrics are the last values of all metrics that this call read, the loss first. If a resumed run
	// had no step left to take, they are the values in the checkpoint and the values of a new evaluation.
	Metrics []Metric
	// Seconds is the time of this call, TrainSeconds that from the first step's launch to the last
	// step's end, with what the hooks took.
	Seconds, TrainSeconds float64
	// Stopped is the reason that a hook passed to [State.Stop], or why a resumed run had no step left to
	// take. It is empty for a run that took all of its steps.
	Stopped string
}

// Value returns the last value of a metric that was read.
func (r Result) Value(name string) (value float64, measured bool) { return find(r.Metrics, name) }

// check refuses what cannot be run, before anything is done.
func check(o Options, hooks []Hook, known []string) error {
	switch {
	case o.Steps < 0:
		return option("option Steps", "give at least 1, or 0 for a pass over the data", "%d", o.Steps)
	case o.Epochs < 0:
		return option("option Epochs", "give at least 1, or 0 for one", "%d", o.Epochs)
	case o.Steps > 0 && o.Epochs > 0:
		return option("option Epochs", "give one, and set the other to 0", "both %d steps and %d passes over the data are asked for", o.Steps, o.Epochs)
	case o.Every < 0:
		return option("option Every", "give at least 1, or 0 for 10", "%d", o.Every)
	}
	files, names := map[string]string{}, map[string]bool{}
	savers, watches := 0, 0
	for i := range hooks {
		h := &hooks[i]
		if h.wrong != nil {
			return h.wrong
		}
		if h.Every < 0 {
			return option("hook "+h.Name, "give at least 1", "an interval of %d steps", h.Every)
		}
		if h.saver != nil {
			if savers++; savers > 1 {
				return option("hook "+h.Name, "keep one of them; it is what a run resumes from", "there are two Checkpoint hooks")
			}
		}
		if h.watch != nil {
			if watches++; watches > 1 {
				return option("hook "+h.Name, "keep one of them", "there are two Watch hooks")
			}
		}
		if h.Save != nil || h.Load != nil {
			if h.Name == "" || names[h.Name] {
				return option("hook "+h.Name, "set its Name", "another hook that saves its state has the same name")
			}
			names[h.Name] = true
		}
		for _, path := range h.Files {
			full, err := filepath.Abs(path)
			if err != nil {
				return &errkind.Fault{Op: "fit: hook " + h.Name, Subject: path, Err: err}
			}
			if other, taken := files[full]; taken {
				return option("hook "+h.Name, "give each a path of its own", "hook %s writes %s, too", other, path)
			}
			files[full] = h.Name
		}
	}
	if o.Resume && savers == 0 {
		return option("option Resume", "add the hook Checkpoint, with the directory of the run", "there are no checkpoints to resume from")
	}
	return needs(hooks, known)
}

// needs refuses hooks that wait for metrics that nothing publishes. Known are the step's own.
func needs(hooks []Hook, known []string) error {
	for i := range hooks {
		if hooks[i].measures() {
			return nil // it may publish anything
		}
		known = append(known, hooks[i].Publishes...)
	}
	for i := range hooks {
		for _, name := range hooks[i].Needs {
			if !slices.Contains(known, name) {
				return noMetric(hooks[i].Name, name, known)
			}
		}
	}
	return nil
}
