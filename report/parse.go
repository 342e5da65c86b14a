package report

import (
	"bytes"
	"cmp"
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
	if err := r.negative(); err != nil {
		return nil, err
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
	for _, l := range r.Lines {
		if min(l.Products, l.Memory, l.Interconnect, l.Network) < 0 || l.PeakBytes < 0 || l.Line < 0 {
			return nil, noReport(nil, "line %q has numbers below 0", l)
		}
	}
	if s := r.Schedule; s != nil {
		if n := s.counted(s.Operations); n < 0 || s.Peak < 0 || s.PeakAt < 0 || s.Rest < 0 {
			return nil, noReport(nil, "its schedule has numbers below 0")
		}
		for _, v := range s.Values {
			if v.Line < 0 || v.Line > len(r.Lines) {
				return nil, noReport(nil, "value %q is of line %d of %d", v.Name, v.Line, len(r.Lines))
			}
			if v.Bytes < 0 || v.From < 0 || v.To < v.From {
				return nil, noReport(nil, "value %q is there from %d to %d", v.Name, v.From, v.To)
			}
		}
	}
	if err := cmp.Or(r.Torus.check(), r.Mends.check()); err != nil {
		return nil, err
	}
	return &r, nil
}

// check refuses chips and links that the slice has not.
func (t *Torus) check() error {
	if t == nil {
		return nil
	}
	chips := 1
	for _, n := range t.Shape {
		if n < 1 || n > maxDevices/chips {
			return noReport(nil, "a slice of %v chips", t.Shape)
		}
		chips *= n
	}
	inside := func(chip []int) bool {
		for d, at := range chip {
			if at < 0 || at >= t.Shape[d] {
				return false
			}
		}
		return true
	}
	for _, p := range t.Places {
		if !inside(p[:3]) {
			return noReport(nil, "a partition at %v of %v chips", p, t.Shape)
		}
	}
	for _, l := range t.Links {
		if !inside(l.Chip[:]) || l.Axis < 0 || l.Axis > 2 || min(l.Bytes, l.Back) < 0 {
			return noReport(nil, "a link at %v of %v chips", l.Chip, t.Shape)
		}
	}
	for _, g := range t.Groups {
		for _, group := range g.Groups {
			for _, partition := range group {
				if partition < 0 || partition >= len(t.Places) {
					return noReport(nil, "a group of partition %d, of %d", partition, len(t.Places))
				}
			}
		}
	}
	return nil
}

// counted is the number of operations, negative if a figure of one is.
func (s *Schedule) counted(all []Operation) (n int) {
	for _, o := range all {
		inside := s.counted(o.Inside)
		beside := Transfer{}
		if o.Beside != nil {
			beside = *o.Beside
		}
		if inside < 0 || min(o.Number, o.Rounds, o.Joined, o.Line) < 0 || o.InUse < 0 ||
			min(o.Start, o.Products, o.Memory, o.Interconnect, o.Network, beside.Start, beside.Seconds) < 0 {
			return -1
		}
		n += 1 + inside
	}
	return n
}

// negative refuses sizes and numbers below 0, which no compiler gives.
func (r *Report) negative() error {
	m := r.Memory
	if min(m.Arguments, m.Outputs, m.Temporaries, m.Aliased, m.Code, m.Total, m.Peak, m.Needs, m.Limit) < 0 {
		return noReport(nil, "a part of its memory is negative")
	}
	for _, c := range r.Collectives {
		if min(int64(c.Count), c.Bytes, c.Moved) < 0 {
			return noReport(nil, "a figure of %s over %q is negative", c.Kind, c.Axis)
		}
	}
	for _, t := range r.Temporaries {
		if min(int64(t.Count), t.Bytes) < 0 {
			return noReport(nil, "a figure of a temporary %s is negative", t.Operation)
		}
	}
	for _, t := range r.Tensors {
		if min(t.BytesPerCore, t.TotalBytes) < 0 {
			return noReport(nil, "a size of tensor %q is negative", t.Name)
		}
	}
	return nil
}
