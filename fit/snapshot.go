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

// snapshotKey is the metadata key of the saved state in a checkpoint.
const snapshotKey = "tpustrategy.fit"

// snapshotVersion is the version of the encoding of a saved state.
const snapshotVersion = 1

// savedState is the state of a run that a checkpoint contains in addition to the variables.
type savedState struct {
	Version  int      `json:"version"`
	Step     int64    `json:"step"`
	Position position `json:"position"`
	// Inputs are the positions of all processes. Only earlier versions wrote them; now Position
	// contains the joined position.
	Inputs   []input.State     `json:"inputs,omitempty"`
	Settings map[string]string `json:"settings,omitempty"`
	Hooks    map[string][]byte `json:"hooks,omitempty"`
	// Pending contains the metrics of the step, as alternating names and values, if the hooks have
	// not processed the step yet.
	Pending []string `json:"pending,omitempty"`
	// Latest contains the last values of all metrics, encoded like Pending. Earlier versions did
	// not write it.
	Latest []string `json:"latest,omitempty"`
	// Metrics are the names of the step's metrics. Sums contains their accumulated values since the
	// last record, as little-endian float64.
	Metrics []string `json:"metrics,omitempty"`
	Sums    []byte   `json:"sums,omitempty"`

	checkpoint *checkpoint.Checkpoint
	isLocal    bool
}

// encodeMetrics encodes metrics as alternating names and values. The values are text because JSON
// has no NaN.
func encodeMetrics(metrics []Metric) (text []string) {
	for _, m := range metrics {
		text = append(text, m.Name, strconv.FormatFloat(m.Value, 'g', -1, 64))
	}
	return text
}

func decodeMetrics(text []string) (all []Metric) {
	for pair := range slices.Chunk(text, 2) {
		value, _ := strconv.ParseFloat(pair[1], 64)
		all = append(all, Metric{pair[0], value})
	}
	return all
}

func (p *savedState) encode() (map[string]string, error) {
	data, err := json.Marshal(p)
	if err != nil {
		return nil, &errkind.Fault{Op: "fit: save the run's position", Err: err, Class: errkind.InternalError}
	}
	return map[string]string{snapshotKey: string(data)}, nil
}

// errSavedState matches the error for metadata that no run can have written. A resumed run skips
// such a checkpoint.
var errSavedState = errkind.New(errkind.DataLossError, "fit: the position in the checkpoint's metadata")

func readSavedState(c *checkpoint.Checkpoint) (*savedState, error) {
	p, err := parseSavedState(c.Metadata())
	if err == nil && p.Step != c.Step() {
		return nil, &errkind.Fault{Match: errSavedState,
			Reason: fmt.Sprintf("it is of step %d, and the checkpoint is of step %d", p.Step, c.Step())}
	}
	return p, err
}

// parseSavedState decodes and checks the saved state in a checkpoint's metadata.
func parseSavedState(metadata map[string]string) (*savedState, error) {
	text, ok := metadata[snapshotKey]
	if !ok {
		return nil, &errkind.Fault{Op: "fit: checkpoint", Reason: "package fit did not write it",
			Class: errkind.ValueError,
			Hint:  "restore it with checkpoint.Restore, and give the run a directory of its own"}
	}
	var p savedState
	if err := json.Unmarshal([]byte(text), &p); err != nil {
		return nil, &errkind.Fault{Match: errSavedState, Reason: "it cannot be read", Err: err}
	}
	if p.Version != snapshotVersion {
		return nil, &errkind.Fault{Op: "fit: checkpoint",
			Reason: fmt.Sprintf("its format is version %d, this program reads %d", p.Version, snapshotVersion),
			Class:  errkind.NotImplementedError, Hint: "use the program that wrote it"}
	}
	if len(p.Pending)%2 != 0 || len(p.Latest)%2 != 0 || len(p.Inputs) == 1 ||
		!isExactCount(p.Step) || !isExactCount(p.Position.Epoch) || !isExactCount(p.Position.Batches) ||
		p.Position.Epoch+p.Position.Batches > p.Step {
		return nil, &errkind.Fault{Match: errSavedState,
			Reason: fmt.Sprintf("step %d with %d batches of pass %d, where every pass has a batch, and every batch a step",
				p.Step, p.Position.Batches, p.Position.Epoch)}
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

// isExactCount reports whether n is not negative and small enough for an exact float64.
func isExactCount(n int64) bool { return n >= 0 && n <= 1<<53 }

// joinPositions joins the data positions of all processes. It returns the zero state if the data
// has no positions.
func joinPositions(states []input.State) (input.State, error) {
	if !slices.ContainsFunc(states, func(s input.State) bool { return !s.IsZero() }) {
		return input.State{}, nil
	}
	return input.JoinStates(states)
}

// differentSetting returns the first setting, in alphabetical order, whose saved and current values
// differ.
func differentSetting(saved, current map[string]string) (name string, found bool) {
	names := slices.Sorted(maps.Keys(saved))
	for name := range current {
		if _, ok := saved[name]; !ok {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	for _, name := range names {
		if saved[name] != current[name] {
			return name, true
		}
	}
	return "", false
}

// Snapshot is the state of a run at a checkpoint.
type Snapshot struct {
	// Step is the number of completed steps.
	Step int64
	// Epoch is the number of the pass over the data, from 0. Batches is the number of batches of this
	// pass that the run has used. Input is the position of the whole run in the pass, for
	// feed.Options.Start on any number of processes and replicas.
	Epoch, Batches int64
	Input          input.State
	// Settings are the settings of the run; see [Options].
	Settings map[string]string
}

// LatestSnapshot returns the state of a run at its latest checkpoint in a directory or at a URL. If
// there is no checkpoint, the error matches checkpoint.ErrNotFound.
func LatestSnapshot(ctx context.Context, dir string) (snapshot Snapshot, err error) {
	if err := strategy.RefuseTracing(ctx, "read where a run stood", fault.InsteadOfMeeting); err != nil {
		return Snapshot{}, err
	}
	m, err := checkpoint.OpenManager(ctx, dir, checkpoint.ManagerOptions{})
	if err != nil {
		return Snapshot{}, err
	}
	defer func() { err = errors.Join(err, m.Close()) }()
	c, err := m.Latest(ctx)
	if err != nil {
		return Snapshot{}, err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	p, err := readSavedState(c)
	if err != nil {
		return Snapshot{}, err
	}
	return Snapshot{Step: p.Step, Epoch: p.Position.Epoch, Batches: p.Position.Batches, Input: p.Position.Input,
		Settings: p.Settings}, nil
}
