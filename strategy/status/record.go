package status

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/internal/activity"
	"github.com/tpustrategy/tpustrategy/strategy/goodput"
)

// State is the state of a host.
type State string

const (
	// Running says that the host takes steps, or tries to.
	Running State = "running"
	// Stuck says that the host has found that it, or another host, does not go on.
	Stuck State = "stuck"
	// Ended says that the host has left the loop.
	Ended State = "ended"
)

// Number is a float64 that JSON can hold: what is not finite is a string there, such as "NaN".
type Number float64

// MarshalJSON writes the number.
func (n Number) MarshalJSON() ([]byte, error) {
	x := float64(n)
	text := strconv.FormatFloat(x, 'g', -1, 64)
	if math.IsNaN(x) || math.IsInf(x, 0) {
		text = strconv.Quote(text)
	}
	return []byte(text), nil
}

// UnmarshalJSON reads what MarshalJSON writes.
func (n *Number) UnmarshalJSON(b []byte) error {
	x, err := strconv.ParseFloat(string(bytes.Trim(b, `"`)), 64)
	*n = Number(x)
	return err
}

// Record is what a host says of itself. Times are in seconds.
type Record struct {
	// Version is that of the form, [Version].
	Version int `json:"version"`
	// Run names the life of the job that the host belongs to: records of another one are old.
	Run string `json:"run,omitempty"`
	// Host is the host's number among Hosts, and Name its name.
	Host  int    `json:"host"`
	Hosts int    `json:"hosts"`
	Name  string `json:"name,omitempty"`
	// PID is the process, and Machine says on which machine that number counts.
	PID     int    `json:"pid,omitempty"`
	Machine string `json:"machine,omitempty"`
	// Sequence grows with each record of a host, and Time is the host's clock.
	Sequence int64     `json:"sequence"`
	Time     time.Time `json:"time"`
	State    State     `json:"state"`
	// Step is the number of steps that were taken, Steps that of all, if it is known.
	Step  int64 `json:"step"`
	Steps int64 `json:"steps,omitempty"`
	// Rate is in steps a second, over the last seconds.
	Rate float64 `json:"rate"`
	// Loss is the last loss that was read, after step LossStep; nil before the first.
	Loss     *Number `json:"loss,omitempty"`
	LossStep int64   `json:"loss_step,omitempty"`
	// Checkpoint is the step of the last checkpoint; 0 is none.
	Checkpoint int64 `json:"checkpoint,omitempty"`
	// Doing is the activity under way, such as "input", and Detail its name, such as the exchange's.
	Doing  string `json:"doing"`
	Detail string `json:"detail,omitempty"`
	// For is how long it has lasted, and Bound how long it may last, by the host's own experience.
	For   float64 `json:"for"`
	Bound float64 `json:"bound,omitempty"`
	// Turn counts the activities of this step.
	Turn int64 `json:"turn"`
	// Took is how long each kind of activity took the last time.
	Took map[string]float64 `json:"took,omitempty"`
	// Shares are the parts of the last seconds, of Window, that went into each kind of activity.
	Shares map[string]float64 `json:"shares,omitempty"`
	Window float64            `json:"window,omitempty"`
	// History is where the time of the run went, over all of its lives; host 0 has it.
	History *goodput.History `json:"history,omitempty"`
	// Trouble is what fails without ending the run, such as a save on a full disk.
	Trouble string `json:"trouble,omitempty"`
	// Findings say who this host thinks is stuck.
	Findings []Finding `json:"findings,omitempty"`
	// Error is how the run ended, if not well.
	Error string `json:"error,omitempty"`
}

// Version is the version of the records' form.
const Version = 1

// maxHosts bounds the number of hosts that a record may name.
const maxHosts = 1 << 16

// Kind returns what the host does.
func (r *Record) Kind() activity.Kind { return activity.Parse(r.Doing) }

// block is what a record is filled up to: it takes no new room where it is written over another.
const block = 4096

// Encode returns the record as a line of JSON, filled up with spaces.
func (r *Record) Encode() ([]byte, error) {
	b, err := json.Marshal(r)
	if err != nil {
		return nil, &errkind.Fault{Op: "status: record", Err: err, Class: errkind.ValueError}
	}
	b = append(b, '\n')
	return append(b, strings.Repeat(" ", block-1-(len(b)-1)%block)...), nil
}

// ErrRecord is matched by a record that cannot be read.
var ErrRecord = errkind.New(errkind.DataLossError, "status: record")

// Parse reads a record. A half written one, one of another form and one that makes no sense match
// [ErrRecord].
func Parse(data []byte) (r Record, err error) {
	reason := ""
	// What follows the line is the rest of a longer record before it.
	line, _, whole := bytes.Cut(data, []byte("\n"))
	if err = json.Unmarshal(line, &r); err != nil {
		reason = "it is damaged or half written"
	}
	switch {
	case !whole:
		reason, err = fmt.Sprintf("%d bytes without an end: it is half written", len(data)), nil
	case err != nil:
	case r.Version != Version:
		reason = fmt.Sprintf("its form is version %d, this program reads %d", r.Version, Version)
	case r.Hosts < 1 || r.Hosts > maxHosts || r.Host < 0 || r.Host >= r.Hosts || r.Step < 0:
		reason = fmt.Sprintf("host %d of %d after step %d", r.Host, r.Hosts, r.Step)
	case r.State != Running && r.State != Stuck && r.State != Ended:
		reason = fmt.Sprintf("the state %q", r.State)
	default:
		return r, nil
	}
	return Record{}, &errkind.Fault{Match: ErrRecord, Reason: reason, Err: err}
}
