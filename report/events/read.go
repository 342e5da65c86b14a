package events

import (
	"bytes"
	"context"
	"fmt"
	"iter"
	"math"
	"strings"
	"time"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/input"
)

// Read reads the events of a file. It verifies the checksums; the last error of a damaged file
// matches [input.ErrCorrupt]. A file that is cut within a record, as after the loss of power, gives
// the events before it first. Values of kinds that this package does not write have the kind
// [Other].
func Read(ctx context.Context, path string) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		for record, err := range input.TFRecords([]string{path}, input.FileOptions{}).All(ctx) {
			var e Event
			if err == nil {
				// A record is a scalar of text: what Flat returns is its values.
				data, _ := record.Leaf().Flat().([]string)
				if e, err = parse([]byte(strings.Join(data, ""))); err != nil {
					err = &errkind.Fault{Op: "events: read", Subject: path, Err: err, Match: input.ErrCorrupt, Hint: "it is no event file of TensorBoard, or it is damaged"}
				}
			}
			if !yield(e, err) || err != nil {
				return
			}
		}
	}
}

// message calls take for each field of a message.
func message(m []byte, take func(field protowire.Number, x fieldValue)) error {
	for len(m) > 0 {
		field, kind, n := protowire.ConsumeTag(m)
		if n < 0 {
			return protowire.ParseError(n)
		}
		m = m[n:]
		var x fieldValue
		switch kind {
		case protowire.VarintType:
			x.number, n = protowire.ConsumeVarint(m)
		case protowire.Fixed64Type:
			x.number, n = protowire.ConsumeFixed64(m)
		case protowire.Fixed32Type:
			var short uint32
			short, n = protowire.ConsumeFixed32(m)
			x.number = uint64(short)
		case protowire.BytesType:
			x.bytes, n = protowire.ConsumeBytes(m)
		default:
			n = protowire.ConsumeFieldValue(field, kind, m)
		}
		if n < 0 {
			return fmt.Errorf("field %d: %w", field, protowire.ParseError(n))
		}
		m = m[n:]
		x.kind = kind
		take(field, x)
	}
	return nil
}

// fieldValue is a field of a message.
type fieldValue struct {
	kind   protowire.Type
	number uint64
	bytes  []byte
}

func (x fieldValue) double() float64 { return math.Float64frombits(x.number) }

// parse reads the message tensorflow.Event.
func parse(m []byte) (e Event, err error) {
	inner := func(m []byte, take func(field protowire.Number, x fieldValue)) {
		if failed := message(m, take); err == nil {
			err = failed
		}
	}
	inner(m, func(field protowire.Number, x fieldValue) {
		switch {
		case field == eventTime && x.kind == protowire.Fixed64Type:
			if t := x.double(); math.Abs(t) < 1e12 {
				e.Time = time.UnixMicro(int64(math.Round(t * 1e6))).UTC()
			}
		case field == eventStep && x.kind == protowire.VarintType:
			e.Step = int64(x.number)
		case field == eventVersion && x.kind == protowire.BytesType:
			e.Version = string(x.bytes)
		case field == eventSession && x.kind == protowire.BytesType:
			inner(x.bytes, func(field protowire.Number, x fieldValue) {
				if field == sessionStatus {
					e.Session = Session(x.number)
				}
			})
		case field == eventSummary && x.kind == protowire.BytesType:
			inner(x.bytes, func(field protowire.Number, x fieldValue) {
				if field == summaryValue && x.kind == protowire.BytesType {
					v, failed := parseValue(x.bytes)
					if err == nil {
						err = failed
					}
					e.Values = append(e.Values, v)
				}
			})
		}
	})
	return e, err
}

// parseValue reads the message tensorflow.Summary.Value.
func parseValue(m []byte) (v Value, err error) {
	failed := message(m, func(field protowire.Number, x fieldValue) {
		switch {
		case field == valueTag && x.kind == protowire.BytesType:
			v.Tag = string(x.bytes)
		case field == valueSimple && x.kind == protowire.Fixed32Type:
			v.Kind, v.Scalar = IsScalar, math.Float32frombits(uint32(x.number))
		case field == valueTensor && x.kind == protowire.BytesType:
			err = message(x.bytes, func(field protowire.Number, x fieldValue) {
				if field == tensorStrings && x.kind == protowire.BytesType {
					v.Kind, v.Text = IsText, string(x.bytes)
				}
			})
		case field == valueMetadata && x.kind == protowire.BytesType:
			err = message(x.bytes, func(field protowire.Number, x fieldValue) {
				if field != metadataPlugin || x.kind != protowire.BytesType {
					return
				}
				var plugin Value
				if failed := message(x.bytes, func(field protowire.Number, x fieldValue) {
					switch {
					case field == pluginName && x.kind == protowire.BytesType:
						plugin.Plugin = string(x.bytes)
					case field == pluginContent && x.kind == protowire.BytesType:
						plugin.Content = bytes.Clone(x.bytes)
					}
				}); failed == nil && len(plugin.Content) > 0 {
					v.Kind, v.Plugin, v.Content = ForPlugin, plugin.Plugin, plugin.Content
				}
			})
		case field == valueHistogram && x.kind == protowire.BytesType:
			v.Kind = IsHistogram
			v.Histogram, err = parseHistogram(x.bytes)
		}
	})
	if err == nil {
		err = failed
	}
	return v, err
}

// parseHistogram reads the message tensorflow.HistogramProto.
func parseHistogram(m []byte) (h Histogram, err error) {
	list := func(x fieldValue) (all []float64) {
		if x.kind == protowire.Fixed64Type {
			return []float64{x.double()}
		}
		for b := x.bytes; len(b) >= 8; b = b[8:] {
			bits, _ := protowire.ConsumeFixed64(b)
			all = append(all, math.Float64frombits(bits))
		}
		return all
	}
	err = message(m, func(field protowire.Number, x fieldValue) {
		switch field {
		case histogramMin:
			h.Min = x.double()
		case histogramMax:
			h.Max = x.double()
		case histogramNumber:
			h.Number = x.double()
		case histogramSum:
			h.Sum = x.double()
		case histogramSquares:
			h.Squares = x.double()
		case histogramLimits:
			h.Limits = append(h.Limits, list(x)...)
		case histogramBuckets:
			h.Buckets = append(h.Buckets, list(x)...)
		}
	})
	return h, err
}
