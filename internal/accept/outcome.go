package accept

import (
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"
)

// Status is the state of one test of an acceptance run on one host.
type Status string

// States of a part of the run.
const (
	Running            Status = "running"
	Passed             Status = "passed"
	PassedWithFindings Status = "passed with findings"
	Failed             Status = "failed"
	Hung               Status = "hung" // it exceeded its time limit and did not return
	NotRun             Status = "not run"
)

// Outcome is the result of one test of an acceptance run on one host.
type Outcome struct {
	Part   string `json:"part"`
	Host   int    `json:"host"`
	Status Status `json:"status"`
	// Seconds is the duration of the part, and TimeLimit is its time limit. Both are in seconds.
	Seconds   float64 `json:"seconds"`
	TimeLimit float64 `json:"budget,omitempty"`
	// Failures are errors. Findings are unexpected results that do not prevent the use of the devices.
	Failures     []string      `json:"failures,omitempty"`
	Findings     []string      `json:"findings,omitempty"`
	Facts        []Fact        `json:"facts,omitempty"`
	Measurements []Measurement `json:"figures,omitempty"`
}

// Fact is a property of the host or the devices, such as a version.
type Fact struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// Measurement is a measured value, such as a bandwidth.
type Measurement struct {
	Name  string  `json:"name"`
	Value float64 `json:"value"`
	Unit  string  `json:"unit"`
	// Published is the manufacturer's value for the same quantity, or 0 if none is known.
	Published float64 `json:"of,omitempty"`
}

// String returns a description such as "matmul bfloat16: 180 TFLOP/s, 91 % of 197".
func (f Measurement) String() string {
	text := fmt.Sprintf("%s: %.4g %s", f.Name, f.Value, f.Unit)
	if f.Published > 0 {
		text += fmt.Sprintf(", %.0f %% of %.4g", 100*f.Value/f.Published, f.Published)
	}
	return text
}

// Verdict is the overall result of an acceptance run.
type Verdict string

// Verdicts of a run.
const (
	Accepted     Verdict = "accepted"
	WithFindings Verdict = "accepted with findings"
	Rejected     Verdict = "failed"
)

// Code returns the exit code for a verdict: 0 for Accepted, 6 for WithFindings, and 1 for Rejected.
func (v Verdict) Code() int {
	switch v {
	case Accepted:
		return 0
	case WithFindings:
		return 6
	}
	return 1
}

// Report contains the outcomes of all hosts whose outcomes this host received, including its own.
type Report struct {
	Version int `json:"version"`
	// Host is the index of this host, and Hosts the number of hosts; both are 0 without devices.
	Host    int       `json:"host"`
	Hosts   int       `json:"hosts"`
	Quick   bool      `json:"quick,omitempty"`
	Began   time.Time `json:"began"`
	Seconds float64   `json:"seconds"`
	Verdict Verdict   `json:"verdict"`
	// Reasons lists the failures with their part and host or, if there are none, the findings.
	Reasons  []string  `json:"reasons,omitempty"`
	Outcomes []Outcome `json:"-"`
}

// Version is the version of the archive format.
const Version = 1

// SetVerdict sets the verdict and the reasons for it, based on the outcomes.
func (r *Report) SetVerdict() {
	var failures, findings []string
	ran := false
	for _, o := range r.Outcomes {
		at := o.Part
		if r.Hosts > 1 {
			at = fmt.Sprintf("%s, host %d", o.Part, o.Host)
		}
		for _, text := range o.Failures {
			failures = append(failures, at+": "+text)
		}
		switch {
		case o.Status == Running:
			failures = append(failures, at+": it was under way when the run ended")
		case (o.Status == Failed || o.Status == Hung) && len(o.Failures) == 0:
			failures = append(failures, at+": "+string(o.Status))
		}
		for _, text := range o.Findings {
			findings = append(findings, at+": "+text)
		}
		ran = ran || o.Status == Passed || o.Status == PassedWithFindings
	}
	if !ran && len(failures) == 0 {
		failures = []string{"no part was run"}
	}
	switch {
	case len(failures) > 0:
		r.Verdict, r.Reasons = Rejected, failures
	case len(findings) > 0:
		r.Verdict, r.Reasons = WithFindings, findings
	default:
		r.Verdict, r.Reasons = Accepted, nil
	}
}

// Text returns a description with one line for each failure, finding, fact and measurement.
func (o Outcome) Text() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%-13s %s", o.Part, o.Status)
	if o.Status != Running && o.Status != NotRun {
		fmt.Fprintf(&b, " in %.1f s", o.Seconds)
	}
	for _, text := range o.Failures {
		fmt.Fprintf(&b, "\n  failure  %s", text)
	}
	for _, text := range o.Findings {
		fmt.Fprintf(&b, "\n  finding  %s", text)
	}
	for _, f := range o.Facts {
		fmt.Fprintf(&b, "\n  %s: %s", f.Name, f.Value)
	}
	for _, f := range o.Measurements {
		fmt.Fprintf(&b, "\n  %s", f)
	}
	return b.String()
}

// WriteArchive writes a report as gzip-compressed JSON lines. The first line is the report without
// its outcomes, and each further line is an outcome.
func WriteArchive(w io.Writer, r *Report) error {
	packed := gzip.NewWriter(w)
	lines := json.NewEncoder(packed)
	err := lines.Encode(r)
	for i := 0; err == nil && i < len(r.Outcomes); i++ {
		err = lines.Encode(r.Outcomes[i])
	}
	return errors.Join(err, packed.Close())
}
