package events

import (
	"context"
	"iter"
	"math"
	"strings"
	"time"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/input"
	"github.com/tpustrategy/tpustrategy/internal/protoint"
)

// Read reads the events of a file. It verifies the checksums. If the file is damaged or ends within
// a record, Read yields the preceding events and then an error; the error of a damaged file matches
// [input.ErrCorrupt]. Values of kinds that this package does not write have the kind [Other].
func Read(ctx context.Context, path string) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		for record, err := range input.TFRecords([]string{path}, input.FileOptions{}).All(ctx) {
			var e Event
			if err == nil {
				// A record is a text scalar, so Flat returns a slice of strings.
				data, _ := record.Leaf().Flat().([]string)
				if e, err = parse([]byte(strings.Join(data, ""))); err != nil {
					err = &errkind.Fault{Op: "events: read", Subject: path, Err: err, Match: input.ErrCorrupt,
						Hint: "it is no event file of TensorBoard, or it is damaged"}
				}
			}
			if !yield(e, err) || err != nil {
				return
			}
		}
	}
}

// parse decodes a tensorflow.Event message.
func parse(m []byte) (e Event, err error) {
	var session uint64
	err = protoint.Scanner{
		eventTime: func(bits uint64) {
			if t := math.Float64frombits(bits); math.Abs(t) < 1e12 {
				e.Time = time.UnixMicro(int64(math.Round(t * 1e6))).UTC()
			}
		},
		eventStep: &e.Step, eventVersion: &e.Version, eventSession: protoint.Scanner{sessionStatus: &session},
		eventSummary: protoint.Scanner{summaryValue: func(m []byte) error {
			v, err := parseValue(m)
			e.Values = append(e.Values, v)
			return err
		}},
	}.Read(m)
	e.Session = Session(session)
	return e, err
}

// parseValue decodes a tensorflow.Summary.Value message.
func parseValue(m []byte) (v Value, err error) {
	var plugin string
	var content []byte
	err = protoint.Scanner{
		valueTag:    &v.Tag,
		valueSimple: func(bits uint64) { v.Kind, v.Scalar = IsScalar, math.Float32frombits(uint32(bits)) },
		valueTensor: protoint.Scanner{tensorStrings: func(text []byte) error {
			v.Kind, v.Text = IsText, string(text)
			return nil
		}},
		valueMetadata: protoint.Scanner{metadataPlugin: protoint.Scanner{pluginName: &plugin, pluginContent: &content}},
		valueHistogram: func(m []byte) error {
			v.Kind = IsHistogram
			h := &v.Histogram
			return protoint.Scanner{histogramMin: &h.Min, histogramMax: &h.Max, histogramNumber: &h.Number, histogramSum: &h.Sum,
				histogramSquares: &h.Squares,
				histogramLimits:  &h.Limits, histogramBuckets: &h.Buckets}.Read(m)
		},
	}.Read(m)
	if len(content) > 0 {
		v.Kind, v.Plugin, v.Content = ForPlugin, plugin, content
	}
	return v, err
}
