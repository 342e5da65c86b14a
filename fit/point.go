package fit

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/input"
	"github.com/tpustrategy/tpustrategy/internal/engine/fault"
	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/strategy/checkpoint"
)

// metadataKey is the key of the point in a checkpoint's metadata.
const metadataKey = "tpustrategy.fit"

// pointVersion is the version of the encoding of a point.
const pointVersion = 1

// point is the state of a run that is saved in addition to the variables.
type point struct {
	Version  int      `json:"version"`
	Step     int64    `json:"step"`
	Position position `json:"position"`
	// Inputs are the positions of all processes. Earlier versions saved them separately instead of
	// one joined position.
	Inputs   []input.State     `json:"inputs,omitempty"`
	Settings map[string]string `json:"settings,omitempty"`
	Hooks    map[string][]byte `json:"hooks,omitempty"`
	// Pending are the metrics of the step, names and values alternating, if its hooks have not run
	// yet.
	Pending []string `json:"pending,omitempty"`
	// Latest are the last values of all metrics, in the encoding of Pending. Earlier versions did
	// not save them.
	Latest []string `json:"latest,omitempty"`
	// Metrics are the names of the step's metrics. Sums are the accumulated values since the last
	// record, as little-endian float64.
	Metrics []string `json:"metrics,omitempty"`
	Sums    []byte   `json:"sums,omitempty"`

	checkpoint *checkpoint.Checkpoint
	near       bool // a local checkpoint
}

// textOf returns metrics as a list of strings: the name and the value of each metric in turn. The
// values are text because JSON has no NaN.
func textOf(metrics []Metric) (text []string) {
	for _, m := range metrics {
		text = append(text, m.Name, strconv.FormatFloat(m.Value, 'g', -1, 64))
	}
	return text
}

// metricsOf decodes the result of textOf.
func metricsOf(text []string) (all []Metric) {
	for pair := range slices.Chunk(text, 2) {
		value, _ := strconv.ParseFloat(pair[1], 64)
		all = append(all, Metric{pair[0], value})
	}
	return all
}

// encode returns the point as checkpoint metadata.
func (p *point) encode() (map[string]string, error) {
	data, err := json.Marshal(p)
	if err != nil {
		return nil, &errkind.Fault{Op: "fit: save the run's position", Err: err, Class: errkind.InternalError}
	}
	return map[string]string{metadataKey: string(data)}, nil
}

// errPoint matches errors of metadata that no run can have saved with its checkpoint. A resume
// skips such a checkpoint.
var errPoint = errkind.New(errkind.DataLossError, "fit: the position in the checkpoint's metadata")

// pointOf decodes the point of a checkpoint and checks its step.
func pointOf(c *checkpoint.Checkpoint) (*point, error) {
	p, err := parsePoint(c.Metadata())
	if err == nil && p.Step != c.Step() {
		return nil, &errkind.Fault{Match: errPoint, Reason: fmt.Sprintf("it is of step %d, and the checkpoint is of step %d", p.Step, c.Step())}
	}
	return p, err
}

// parsePoint decodes and checks the point in a checkpoint's metadata.
func parsePoint(metadata map[string]string) (*point, error) {
	text, ok := metadata[metadataKey]
	if !ok {
		return nil, &errkind.Fault{Op: "fit: checkpoint", Reason: "it is not of a run of this package", Class: errkind.ValueError,
			Hint: "restore it with checkpoint.Restore, and give the run a directory of its own"}
	}
	var p point
	if err := json.Unmarshal([]byte(text), &p); err != nil {
		return nil, &errkind.Fault{Match: errPoint, Reason: "it cannot be read", Err: err}
	}
	if p.Version != pointVersion {
		return nil, &errkind.Fault{Op: "fit: checkpoint", Reason: fmt.Sprintf("its form is version %d, this program reads %d", p.Version, pointVersion),
			Class: errkind.NotImplementedError, Hint: "use the program that wrote it"}
	}
	if len(p.Pending)%2 != 0 || len(p.Latest)%2 != 0 || len(p.Inputs) == 1 ||
		!counts(p.Step) || !counts(p.Position.Pass) || !counts(p.Position.Taken) || p.Position.Pass+p.Position.Taken > p.Step {
		return nil, &errkind.Fault{Match: errPoint,
			Reason: fmt.Sprintf("step %d with %d batches of pass %d, where every pass has a batch, and every batch a step", p.Step, p.Position.Taken, p.Position.Pass)}
	}
	if len(p.Inputs) > 0 {
		var err error
		if p.Position.Input, err = joinPositions(p.Inputs); err != nil {
			return nil, err
		}
		p.Inputs = nil
	}
	return &p, nil
}

// counts reports whether n is a possible count: not negative, and exact as a float64, as n+1 is.
func counts(n int64) bool { return n >= 0 && n <= 1<<53 }

// joinPositions joins the positions of all processes into the position of the run. It returns the
// zero state if the data has no positions.
func joinPositions(all []input.State) (input.State, error) {
	if !slices.ContainsFunc(all, func(s input.State) bool { return !s.IsZero() }) {
		return input.State{}, nil
	}
	return input.JoinStates(all)
}

// firstDifference returns the first setting, in alphabetical order, whose values differ.
func firstDifference(saved, here map[string]string) (name string, found bool) {
	names := slices.Sorted(maps.Keys(saved))
	for name := range here {
		if _, ok := saved[name]; !ok {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	for _, name := range names {
		if saved[name] != here[name] {
			return name, true
		}
	}
	return "", false
}

// Point is the state of a run when it saved a checkpoint.
type Point struct {
	// Step is the number of completed steps.
	Step int64
	// Pass is the number of the pass over the data, from 0. Taken is the number of batches of this
	// pass that the run has used. Input is the position of the whole run in the pass, for
	// feed.Options.From on any number of processes and replicas.
	Pass, Taken int64
	Input       input.State
	// Settings are the settings of the run; see [Options].
	Settings map[string]string
}

// Saved returns the state of the run that saved the last checkpoint in a directory or at a URL. If
// there is no checkpoint, the error matches checkpoint.ErrNotFound.
func Saved(ctx context.Context, dir string) (at Point, err error) {
	if err := strategy.RefuseTracing(ctx, "read where a run stood", fault.InsteadOfMeeting); err != nil {
		return Point{}, err
	}
	m, err := checkpoint.OpenManager(ctx, dir, checkpoint.ManagerOptions{})
	if err != nil {
		return Point{}, err
	}
	defer func() { err = errors.Join(err, m.Close()) }()
	c, err := m.Latest(ctx)
	if err != nil {
		return Point{}, err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	p, err := pointOf(c)
	if err != nil {
		return Point{}, err
	}
	return Point{Step: p.Step, Pass: p.Position.Pass, Taken: p.Position.Taken, Input: p.Position.Input, Settings: p.Settings}, nil
}
