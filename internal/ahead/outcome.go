package ahead

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"

	"github.com/tpustrategy/tpustrategy/internal/units"
	"github.com/tpustrategy/tpustrategy/report"
)

// Outcome is the result of a compilation for one topology: a report with its summary, or an error.
// For a program that is too large it contains both.
type Outcome struct {
	Topology string `json:"topology"`
	*report.Summary
	Report *report.Report `json:"report,omitempty"`
	Error  *Failure       `json:"error,omitempty"`
}

// OutcomeOf returns the Outcome of a compilation that returned r and err.
func OutcomeOf(topology string, r *report.Report, err error) Outcome {
	o := Outcome{Topology: topology}
	if err != nil {
		f := *FailureOf(err)
		r, f.Report, o.Error = f.Report, nil, &f
	}
	if r == nil {
		return o
	}
	s := r.Summary()
	o.Report, o.Summary = r, &s
	if r.Memory.Verdict == report.TooLarge && o.Error == nil {
		o.Error = &Failure{Category: "memory", Message: fmt.Sprintf("%s on %s: it needs %s of the %s of a core's memory",
			r.Step, topology, units.Bytes(r.Memory.Needs), units.Bytes(r.Memory.Limit))}
	}
	return o
}

// WriteReports writes the reports to files. If there are several reports, the file names contain
// the topologies.
func WriteReports(path string, all []Outcome) error {
	var unwritten []error
	for _, o := range all {
		if path == "" || o.Report == nil {
			continue
		}
		if err := WriteReport(ReportPath(path, o.Topology, len(all)), o.Report); err != nil {
			unwritten = append(unwritten, err)
		}
	}
	return errors.Join(unwritten...)
}

// ReportPath returns the file name of the report for a topology. count is the number of topologies.
func ReportPath(path, topology string, count int) string {
	if count < 2 {
		return path
	}
	ext := filepath.Ext(path)
	name := strings.NewReplacer(":", "_", " ", "_", "/", "_").Replace(topology)
	return fmt.Sprintf("%s-%s%s", strings.TrimSuffix(path, ext), name, ext)
}

// WriteReport writes a report as an HTML page if the file's name ends in .html, and as JSON otherwise.
func WriteReport(path string, r *report.Report) error {
	return WriteFile(path, func(w io.Writer) error {
		if ext := filepath.Ext(path); ext == ".html" || ext == ".htm" {
			return r.WriteHTML(w)
		}
		return WriteJSON(w, r)
	})
}

// WriteJSON writes a value as JSON.
func WriteJSON(w io.Writer, v any) error {
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	return encoder.Encode(v)
}

// WriteOutcomes writes outcomes as JSON or as text. The text contains the reports and, for several
// topologies, the errors.
func WriteOutcomes(w io.Writer, all []Outcome, asJSON bool) error {
	if asJSON {
		return WriteJSON(w, all)
	}
	for i, o := range all {
		if i > 0 {
			fmt.Fprintln(w)
		}
		if o.Report != nil {
			if err := o.Report.WriteText(w); err != nil {
				return err
			}
		} else if len(all) > 1 {
			fmt.Fprintf(w, "%s: %s\n", o.Topology, o.Error.Message)
		}
	}
	return nil
}

// FirstFailure returns the first error of the outcomes, or nil. If there are several outcomes, the
// message names the topology.
func FirstFailure(all []Outcome) *Failure {
	for _, o := range all {
		if o.Error == nil {
			continue
		}
		f := *o.Error
		if len(all) > 1 {
			f.Message = o.Topology + ": " + f.Message
		}
		return &f
	}
	return nil
}
