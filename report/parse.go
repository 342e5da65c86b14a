package report

import (
	"bytes"
	"encoding/json"
	"io"

	"github.com/tpustrategy/tpustrategy/errkind"
)

// ErrFormat matches the error of [Parse] for data that is no report.
var ErrFormat = errkind.New(errkind.ValueError, "report: not a report")

// Parse reads the JSON form of a report. It reads version 1 too, and adds a note about that
// version's figures of loops. Errors match [ErrFormat].
func Parse(data []byte) (*Report, error) {
	decoder := json.NewDecoder(bytes.NewReader(data))
	var r Report
	if err := decoder.Decode(&r); err != nil {
		return nil, noReport(err, "")
	}
	if _, err := decoder.Token(); err != io.EOF {
		return nil, noReport(nil, "there is more after it")
	}
	if r.Version == 1 {
		r.Version = FormatVersion
		r.note("the report is of an older version, which counted what is in loops once")
	}
	switch {
	case r.Version == 0:
		return nil, noReport(nil, "it has no version")
	case r.Version != FormatVersion:
		return nil, noReport(nil, "its version is %d, this program reads %d", r.Version, FormatVersion)
	case r.Replicas < 1 || r.LogicalDevices < 1:
		return nil, noReport(nil, "%d replicas of %d logical devices", r.Replicas, r.LogicalDevices)
	}
	for _, t := range r.Tensors {
		if len(t.Shape) != len(t.Shard) {
			return nil, noReport(nil, "tensor %q has shape %v and shard %v", t.Name, t.Shape, t.Shard)
		}
		for d := range t.Shape {
			if t.Shape[d] < 0 || t.Shard[d] < 0 || t.Shard[d] > t.Shape[d] && !t.PerReplica {
				return nil, noReport(nil, "tensor %q has shape %v and shard %v", t.Name, t.Shape, t.Shard)
			}
		}
		for _, start := range t.Starts {
			if len(start) != len(t.Shape) {
				return nil, noReport(nil, "tensor %q has a part at %v", t.Name, start)
			}
		}
	}
	return &r, nil
}
