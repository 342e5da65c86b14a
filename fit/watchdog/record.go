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
	// Running means that the host runs steps, or tries to.
	Running State = "running"
	// Stuck means that the host has detected that the run makes no progress.
	Stuck State = "stuck"
	// Ended means that the host has left the training loop.
	Ended State = "ended"
)

// JSONFloat is a float64 with a JSON encoding for all values. A value that is not finite is encoded
// as a string, such as "NaN".
type JSONFloat float64

func (n JSONFloat) MarshalJSON() ([]byte, error) {
	text := strconv.FormatFloat(float64(n), 'g', -1, 64)
	if math.IsNaN(float64(n)) || math.IsInf(float64(n), 0) {
		text = strconv.Quote(text)
	}
	return []byte(text), nil
}

func (n *JSONFloat) UnmarshalJSON(b []byte) error {
	x, err := strconv.ParseFloat(string(bytes.Trim(b, `"`)), 64)
	*n = JSONFloat(x)
	return err
}

// Record is the status record of a host, which the host writes. Times are in seconds.
type Record struct {
	// Version is the version of the encoding, [Version].
	Version int `json:"version"`
	// Run identifies the attempt of the job. Records of other attempts are ignored.
	Run string `json:"run,omitempty"`
	// Host is the host's number, Hosts is the number of hosts, and Name is the host's name.
	Host  int    `json:"host"`
	Hosts int    `json:"hosts"`
	Name  string `json:"name,omitempty"`
	// PID is the process ID, and Machine identifies the machine on which the PID is valid.
	PID     int    `json:"pid,omitempty"`
	Machine string `json:"machine,omitempty"`
	// Sequence increases with each record of a host. Time is the host's clock when it wrote the
	// record.
	Sequence int64     `json:"sequence"`
	Time     time.Time `json:"time"`
	State    State     `json:"state"`
	// Step is the number of completed steps, and Steps is the total number of steps, or 0 if it is
	// not known.
	Step  int64 `json:"step"`
	Steps int64 `json:"steps,omitempty"`
	// Rate is the number of steps per second over the last Window seconds.
	Rate float64 `json:"rate"`
	// Loss is the last loss that was read, after step LossStep; nil before the first.
	Loss     *JSONFloat `json:"loss,omitempty"`
	LossStep int64      `json:"loss_step,omitempty"`
	// Checkpoint is the step of the last checkpoint, or 0.
	Checkpoint int64 `json:"checkpoint,omitempty"`
	// Activity is the current activity, such as "input". ActivityName is its name, such as the name
	// of an exchange.
	Activity     string `json:"doing"`
	ActivityName string `json:"detail,omitempty"`
	// Duration is the duration of the activity so far, and Timeout is its timeout.
	Duration float64 `json:"for"`
	Timeout  float64 `json:"bound,omitempty"`
	// ActivityIndex is the number of activities in this step so far.
	ActivityIndex int64 `json:"turn"`
	// LastDurations is the duration of the last activity of each kind.
	LastDurations map[string]float64 `json:"took,omitempty"`
	// TimeFractions are the fractions of the last Window seconds that each kind of activity used.
	TimeFractions map[string]float64 `json:"shares,omitempty"`
	Window        float64            `json:"window,omitempty"`
	// History contains the use of the run's time over all of its attempts; only host 0 has it.
	History *goodput.History `json:"history,omitempty"`
	// NonFatalError is the error of an operation that fails without ending the run, such as a save
	// on a full disk.
	NonFatalError string `json:"trouble,omitempty"`
	// Findings are the problems that this host has found.
	Findings []Finding `json:"findings,omitempty"`
	// Error is the error with which the run ended, or empty.
	Error string `json:"error,omitempty"`
}

// Version is the version of the encoding of records.
const Version = 1

// maxHosts is the maximum number of hosts in a valid record.
const maxHosts = 1 << 16

func (r *Record) activity() Activity { return activity.ParseKind(r.Activity) }

// recordBlock is the size to which records are padded. Overwriting a record then requires no
// additional disk space.
const recordBlock = 4096

// encode returns the record as one line of JSON, padded with spaces.
func (r *Record) encode() ([]byte, error) {
	b, err := json.Marshal(r)
	if err != nil {
		return nil, &errkind.Fault{Op: "watchdog: record", Err: err, Class: errkind.ValueError}
	}
	b = append(b, '\n')
	return append(b, strings.Repeat(" ", recordBlock-1-(len(b)-1)%recordBlock)...), nil
}

// errRecord matches the error for a record that cannot be decoded.
var errRecord = errkind.New(errkind.DataLossError, "watchdog: record")

// parseRecord decodes a record. The error for an incomplete, incompatible or inconsistent record
// matches errRecord.
func parseRecord(data []byte) (r Record, err error) {
	reason := ""
	// Data after the line is the rest of a longer earlier record.
	line, _, whole := bytes.Cut(data, []byte("\n"))
	switch err = json.Unmarshal(line, &r); {
	case !whole:
		reason, err = fmt.Sprintf("%d bytes without an end: it is half written", len(data)), nil
	case err != nil:
		reason = "it is damaged or half written"
	case r.Version != Version:
		reason = fmt.Sprintf("its format is version %d, this program reads %d", r.Version, Version)
	case r.Hosts < 1 || r.Hosts > maxHosts || r.Host < 0 || r.Host >= r.Hosts || r.Step < 0:
		reason = fmt.Sprintf("host %d of %d after step %d", r.Host, r.Hosts, r.Step)
	case r.State != Running && r.State != Stuck && r.State != Ended:
		reason = fmt.Sprintf("the state %q", r.State)
	default:
		return r, nil
	}
	return Record{}, &errkind.Fault{Match: errRecord, Reason: reason, Err: err}
}

// machineID identifies the machine and the PID namespace of this process. It is empty without
// /proc.
func machineID() string {
	space, err := os.Readlink("/proc/self/ns/pid")
	if boot := hostfacts.BootID(); boot != "" && err == nil {
		return boot + " " + space
	}
	return ""
}

// checkProcess returns "is stopped" or "has ended" for a process on this machine. It returns an
// empty string if the process is running or its state is unknown.
func (r *Record) checkProcess() string {
	if r.PID == 0 || r.Machine == "" || r.Machine != machineID() {
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
