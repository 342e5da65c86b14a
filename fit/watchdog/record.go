package watchdog

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/fit/goodput"
	"github.com/tpustrategy/tpustrategy/internal/activity"
	"github.com/tpustrategy/tpustrategy/internal/hostfacts"
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
	text := strconv.FormatFloat(float64(n), 'g', -1, 64)
	if math.IsNaN(float64(n)) || math.IsInf(float64(n), 0) {
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

// kind returns what the host does.
func (r *Record) kind() Activity { return activity.Parse(r.Doing) }

// recordBlock is what a record is filled up to: it takes no new room where it is written over another.
const recordBlock = 4096

// encode returns the record as a line of JSON, filled up with spaces.
func (r *Record) encode() ([]byte, error) {
	b, err := json.Marshal(r)
	if err != nil {
		return nil, &errkind.Fault{Op: "watchdog: record", Err: err, Class: errkind.ValueError}
	}
	b = append(b, '\n')
	return append(b, strings.Repeat(" ", recordBlock-1-(len(b)-1)%recordBlock)...), nil
}

// errRecord is matched by a record that cannot be read.
var errRecord = errkind.New(errkind.DataLossError, "watchdog: record")

// parse reads a record. A half written one, one of another form and one that makes no sense match
// errRecord.
func parse(data []byte) (r Record, err error) {
	reason := ""
	// What follows the line is the rest of a longer record before it.
	line, _, whole := bytes.Cut(data, []byte("\n"))
	switch err = json.Unmarshal(line, &r); {
	case !whole:
		reason, err = fmt.Sprintf("%d bytes without an end: it is half written", len(data)), nil
	case err != nil:
		reason = "it is damaged or half written"
	case r.Version != Version:
		reason = fmt.Sprintf("its form is version %d, this program reads %d", r.Version, Version)
	case r.Hosts < 1 || r.Hosts > maxHosts || r.Host < 0 || r.Host >= r.Hosts || r.Step < 0:
		reason = fmt.Sprintf("host %d of %d after step %d", r.Host, r.Hosts, r.Step)
	case r.State != Running && r.State != Stuck && r.State != Ended:
		reason = fmt.Sprintf("the state %q", r.State)
	default:
		return r, nil
	}
	return Record{}, &errkind.Fault{Match: errRecord, Reason: reason, Err: err}
}

// machine says on which machine, and among which of its processes, the number of this process
// counts. It is empty where /proc does not tell.
func machine() string {
	space, err := os.Readlink("/proc/self/ns/pid")
	if boot := hostfacts.Boot(); boot != "" && err == nil {
		return boot + " " + space
	}
	return ""
}

// process says what became of a record's process, if it is of this machine: "is stopped" or "has
// ended", empty if it runs or that cannot be known.
func (r *Record) process() string {
	if r.PID == 0 || r.Machine == "" || r.Machine != machine() {
		return ""
	}
	switch p, err := hostfacts.ReadProcess(r.PID); {
	case errors.Is(err, fs.ErrNotExist) || p.State == 'Z' || p.State == 'X':
		return "has ended"
	case p.State == 'T' || p.State == 't':
		return "is stopped"
	}
	return ""
}
