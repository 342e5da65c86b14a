package report

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"

	"github.com/tpustrategy/tpustrategy/errkind"
)

// ErrFormat is matched by the error of [Parse] for what is no report.
var ErrFormat = errkind.New(errkind.ValueError, "report: not a report")

// Parse reads the JSON form of a report, also of version 1, whose figures of loops get
// a note. Errors match [ErrFormat].
func Parse(data []byte) (*Report, error) {
	decoder := json.NewDecoder(bytes.NewReader(data))
	var r Report
	if err := decoder.Decode(&r); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrFormat, err)
	}
	if _, err := decoder.Token(); err != io.EOF {
		return nil, fmt.Errorf("%w: there is more after it", ErrFormat)
	}
	if r.Version == 1 {
		r.Version = FormatVersion
		r.note("the report is of an older version, which counted what is in loops once")
	}
	switch {
	case r.Version == 0:
		return nil, fmt.Errorf("%w: it has no version", ErrFormat)
	case r.Version != FormatVersion:
		return nil, fmt.Errorf("%w: its version is %d, this program reads %d", ErrFormat, r.Version, FormatVersion)
	case r.Replicas < 1 || r.LogicalDevices < 1:
		return nil, fmt.Errorf("%w: %d replicas of %d logical devices", ErrFormat, r.Replicas, r.LogicalDevices)
	}
	for _, t := range r.Tensors {
		if len(t.Shape) != len(t.Shard) {
			return nil, fmt.Errorf("%w: tensor %q has shape %v and shard %v", ErrFormat, t.Name, t.Shape, t.Shard)
		}
		for d := range t.Shape {
			if t.Shape[d] < 0 || t.Shard[d] < 0 || t.Shard[d] > t.Shape[d] && !t.PerReplica {
				return nil, fmt.Errorf("%w: tensor %q has shape %v and shard %v", ErrFormat, t.Name, t.Shape, t.Shard)
			}
		}
		for _, start := range t.Starts {
			if len(start) != len(t.Shape) {
				return nil, fmt.Errorf("%w: tensor %q has a part at %v", ErrFormat, t.Name, start)
			}
		}
	}
	return &r, nil
}
