package fit

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/gomlx/gomlx/core/tensors"

	"github.com/tpustrategy/tpustrategy/fit/interrupt"
	"github.com/tpustrategy/tpustrategy/report/events"
)

// EventsOptions configures an [Events] hook.
type EventsOptions struct {
	// HistogramEvery is the interval, in records, at which the distribution of each trainable variable
	// is written, starting at the first record; 0 writes none. Each distribution copies the
	// variable to the host.
	HistogramEvery int
	// Now returns the wall time of the events; nil means time.Now.
	Now func() time.Time
	// Host is the host name in the file names; empty means os.Hostname.
	Host string
}

// Events writes the metrics of each record (see [Options].Every) to TensorBoard event files below
// dir, which it creates. `tensorboard --logdir` shows them. Metrics of the step are in the folder
// "train". Metrics of an [Evaluate] hook are in a folder with its name, so that TensorBoard draws
// "held/loss" in one chart with the training loss. A file in dir itself contains Options.Settings
// as hyperparameters.
//
// The files contain a record when the hook returns. A resumed run writes new files with the step
// from which it resumed, so that TensorBoard drops the steps that are run again. A new run returns
// an error if dir contains event files. A full disk is handled as in [CSV].
func Events(dir string, opts ...EventsOptions) Hook {
	o, wrong := singleOption("hook events "+dir, opts)
	if wrong == nil && o.HistogramEvery < 0 {
		wrong = optionError("hook events "+dir, "give at least 1, or 0 for none", "histograms at every %d records",
			o.HistogramEvery)
	}
	l := &eventLog{dir: dir, opts: o}
	return Hook{Name: "events " + dir, err: wrong, Files: []string{dir},
		reset:  func() { *l = eventLog{dir: l.dir, opts: l.opts} },
		Begin:  func(_ context.Context, s *State) error { return l.begin(s) },
		Record: l.addRecord,
		Save:   l.save, Load: func(saved []byte) error {
			if len(saved) == 0 {
				return nil
			}
			if json.Unmarshal(saved, &l.unwritten) == nil {
				return nil
			}
			var one [][]byte // the encoding of earlier versions, which wrote one file
			err := json.Unmarshal(saved, &one)
			l.unwritten = map[string][][]byte{trainFolder: one}
			return err
		},
		End: func(_ context.Context, s *State, err error) error { return l.close(err) },
	}
}

// trainFolder is the folder of the metrics of the step.
const trainFolder = "train"

type eventLog struct {
	dir           string
	opts          EventsOptions
	writerOptions events.Options
	writers       map[string]*events.Writer // by folder; "" has the hyperparameters
	unwritten     map[string][][]byte       // unwritten events of an earlier process, by folder
	records       int
	writeFailed   bool
}

func (l *eventLog) begin(s *State) error {
	if !s.IsChief() {
		return nil
	}
	l.writers = map[string]*events.Writer{}
	l.writerOptions = events.Options{Now: l.opts.Now, Host: l.opts.Host, Alone: !s.ResumeEnabled()}
	if s.ResumeEnabled() {
		l.writerOptions.Restart = s.NextRecordStep()
	}
	folders := append(slices.Collect(maps.Keys(l.unwritten)), trainFolder)
	for _, h := range s.runner.hooks {
		folder, _ := folderAndTag(s, h.metricPrefix+"/")
		folders = append(folders, folder)
	}
	for _, folder := range folders {
		if _, err := l.writer(folder); err != nil {
			return err
		}
	}
	if len(s.runner.options.Settings) == 0 {
		return nil
	}
	return l.writeRunValue(events.Hyperparameters(s.runner.options.Settings, l.wallTime()))
}

// writeRunValue writes a value that describes the complete run, such as the hyperparameters.
func (l *eventLog) writeRunValue(v events.Value) error {
	w, err := l.writer("")
	if err != nil {
		return err
	}
	_ = w.Write(events.Event{Values: []events.Value{v}}) // the writer keeps a failed event and writes it later
	return nil
}

func (l *eventLog) wallTime() float64 {
	now := time.Now
	if l.opts.Now != nil {
		now = l.opts.Now
	}
	return float64(now().UnixMicro()) / 1e6
}

// writer returns the writer of a folder, and creates it at the first call.
func (l *eventLog) writer(folder string) (*events.Writer, error) {
	if w := l.writers[folder]; w != nil {
		return w, nil
	}
	w, err := events.Create(filepath.Join(l.dir, folder), l.writerOptions)
	if err != nil {
		return nil, err
	}
	w.Keep(l.unwritten[folder])
	l.writers[folder] = w
	return w, nil
}

// folderAndTag returns the folder and the TensorBoard tag of a metric.
func folderAndTag(s *State, metric string) (folder, tag string) {
	for _, h := range s.runner.hooks {
		name := h.metricPrefix
		if tag, ok := strings.CutPrefix(metric, name+"/"); ok && name != "" && name != trainFolder && name != "." &&
			filepath.IsLocal(name) && filepath.Base(name) == name {
			return name, tag
		}
	}
	return trainFolder, metric
}

// addRecord writes the events of the current record. If that fails, it logs a warning; the writers
// keep the events.
func (l *eventLog) addRecord(ctx context.Context, s *State) error {
	values := map[string][]events.Value{}
	for _, m := range s.Metrics() {
		folder, tag := folderAndTag(s, m.Name)
		values[folder] = append(values[folder], events.Scalar(tag, m.Value))
	}
	if l.opts.HistogramEvery > 0 && l.records%l.opts.HistogramEvery == 0 {
		all, err := variableHistograms(ctx, s)
		if err != nil {
			return err
		}
		values[trainFolder] = append(values[trainFolder], all...)
	}
	l.records++
	if !s.IsChief() {
		return nil
	}
	var failed error
	for folder, list := range values {
		w, err := l.writer(folder)
		if err != nil {
			return err
		}
		failed = errors.Join(failed, w.Write(events.Event{Step: s.Step(), Values: list}))
	}
	if failed != nil && !l.writeFailed {
		s.Warn("fit: events are kept in memory until they can be written", "folder", l.dir, "error", failed)
	}
	l.writeFailed = failed != nil
	return nil
}

// variableHistograms returns a histogram of each trainable floating-point variable. All processes
// must call it.
func variableHistograms(ctx context.Context, s *State) (all []events.Value, err error) {
	for _, v := range s.Strategy().Variables(s.runner.trainStep.Store()).All() {
		if !v.Trainable() || !v.Shape().DType.IsFloat() {
			continue
		}
		t, err := v.Value(ctx)
		if err != nil {
			return nil, err
		}
		numbers, err := floatValues(t)
		if err != nil {
			return nil, err
		}
		all = append(all, events.NewHistogram(strings.TrimPrefix(v.Path(), "/"), numbers))
	}
	return all, nil
}

// floatValues converts the elements of a floating-point tensor to float64.
func floatValues(t *tensors.Tensor) (numbers []float64, err error) {
	err = t.ConstFlatData(func(flat any) {
		list := reflect.ValueOf(flat)
		for i := range list.Len() {
			if x := list.Index(i); x.CanFloat() {
				numbers = append(numbers, x.Float())
			} else if f, ok := x.Interface().(interface{ Float32() float32 }); ok { // 16-bit floats
				numbers = append(numbers, float64(f.Float32()))
			}
		}
	})
	return numbers, err
}

// save syncs the files to disk and returns the events that are not written yet.
func (l *eventLog) save() ([]byte, error) {
	kept := map[string][][]byte{}
	for folder, w := range l.writers {
		if w.Flush() == nil {
			_ = w.Sync() // training continues after an error
		}
		if len(w.Kept()) > 0 {
			kept[folder] = w.Kept()
		}
	}
	if len(kept) == 0 {
		return nil, nil
	}
	return json.Marshal(kept)
}

func (l *eventLog) close(runErr error) error {
	if l.writers[""] != nil {
		switch {
		case runErr == nil:
			_ = l.writeRunValue(events.HyperparametersEnd(events.Succeeded, l.wallTime())) // the file exists already
		case !errors.As(runErr, new(*interrupt.Error)):
			_ = l.writeRunValue(events.HyperparametersEnd(events.Failed, l.wallTime()))
		}
	}
	var all []error
	for _, folder := range slices.Sorted(maps.Keys(l.writers)) {
		w := l.writers[folder]
		err := w.Flush()
		if err != nil {
			bytes := 0
			for _, record := range w.Kept() {
				bytes += len(record)
			}
			err = writeError(w.Path(), bytes, err)
		}
		if closed := w.Close(); err == nil {
			err = closed
		}
		all = append(all, err)
	}
	l.writers = nil
	return errors.Join(all...)
}
