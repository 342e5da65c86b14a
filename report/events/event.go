package events

import (
	"fmt"
	"math"
	"time"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/input"
)

// Version is the version of the written file format, as stored in a file's first record.
const Version = "brain.Event:2"

// Session is the status of a run that an event reports.
type Session int32

const (
	// NoSession is the Session of an event without a status.
	NoSession Session = iota
	// Start is the Session of a run that restarts at the event's step. Readers discard the events
	// of earlier files from this step on.
	Start
	// End is the Session of a run that ended.
	End
)

// String returns the name of the corresponding constant in TensorFlow.
func (s Session) String() string {
	switch s {
	case Start:
		return "START"
	case End:
		return "STOP"
	}
	return "STATUS_UNSPECIFIED"
}

// Event is an entry of an event file, usually with the data of one step. It contains a Version, a
// Session or Values.
type Event struct {
	// Time is the wall time, which TensorBoard shows. Its precision in a file is a microsecond.
	Time time.Time
	Step int64
	// Version is the version of the file format, in the first event of a file.
	Version string
	Session Session
	Values  []Value
}

// Value is a scalar, a text, a histogram or a message for a plugin, with its tag. TensorBoard
// groups tags by their prefix before a slash, such as "held/loss". Create values with [Scalar],
// [Text], [NewHistogram] and [Hyperparameters].
type Value struct {
	Tag       string
	Kind      Kind
	Scalar    float32
	Text      string
	Histogram Histogram
	// Plugin is the TensorBoard plugin that the value is for. Content is the message, see
	// [Hyperparameters].
	Plugin  string
	Content []byte
}

// Kind is the type of a value.
type Kind int

const (
	// Other is the kind of a value that this package does not parse, such as an image.
	Other Kind = iota
	IsScalar
	IsText
	IsHistogram
	// ForPlugin is the kind of a message for a plugin, in the value's metadata.
	ForPlugin
)

// Scalar returns a scalar value. x may be NaN or infinite.
func Scalar(tag string, x float64) Value { return Value{Tag: tag, Kind: IsScalar, Scalar: float32(x)} }

// Text returns a text value. TensorBoard renders it as Markdown.
func Text(tag, text string) Value { return Value{Tag: tag, Kind: IsText, Text: text} }

// The fields of the messages, of tensorflow/core/util/event.proto and the files that it imports.
const (
	eventTime, eventStep, eventVersion, eventSummary, eventSession = 1, 2, 3, 5, 7

	sessionStatus = 1

	summaryValue = 1

	valueTag, valueSimple, valueHistogram, valueTensor, valueMetadata = 1, 2, 5, 8, 9

	metadataPlugin, pluginName = 1, 1

	tensorDType, tensorShape, tensorStrings = 1, 2, 8
	dtypeString                             = 7

	histogramMin, histogramMax, histogramNumber, histogramSum, histogramSquares, histogramLimits, histogramBuckets = 1, 2,
		3, 4, 5, 6, 7
)

// Append appends the event to the contents of an event file, as one record.
func (e Event) Append(file []byte) []byte { return input.AppendTFRecord(file, e.encode()) }

// check returns an error for an event that TensorBoard does not support.
func (e Event) check() error {
	if e.Session < NoSession || e.Session > End {
		return &errkind.Fault{Op: "events: write", Reason: fmt.Sprintf("the session %d is unknown", int(e.Session)),
			Class: errkind.ValueError,
			Hint:  "use NoSession, Start or End"}
	}
	for _, v := range e.Values {
		if v.Kind < Other || v.Kind > ForPlugin {
			return &errkind.Fault{Op: "events: write", Subject: fmt.Sprintf("%q", v.Tag),
				Reason: fmt.Sprintf("the kind %d is unknown", int(v.Kind)),
				Class:  errkind.ValueError, Hint: "make values with Scalar, Text, NewHistogram or Hyperparameters"}
		}
	}
	return nil
}

// encode returns the event as an encoded tensorflow.Event message.
func (e Event) encode() []byte {
	m := appendDouble(nil, eventTime, float64(e.Time.UnixMicro())/1e6)
	if e.Step != 0 {
		m = appendInt(m, eventStep, uint64(e.Step))
	}
	switch {
	case e.Version != "":
		m = appendText(m, eventVersion, e.Version)
	case e.Session != NoSession:
		m = appendBytes(m, eventSession, appendInt(nil, sessionStatus, uint64(e.Session)))
	default:
		var summary []byte
		for _, v := range e.Values {
			summary = appendBytes(summary, summaryValue, v.encode())
		}
		m = appendBytes(m, eventSummary, summary)
	}
	return m
}

// encode returns the value as an encoded tensorflow.Summary.Value message.
func (v Value) encode() []byte {
	m := appendText(nil, valueTag, v.Tag)
	switch v.Kind {
	case IsScalar:
		m = protowire.AppendTag(m, valueSimple, protowire.Fixed32Type)
		m = protowire.AppendFixed32(m, math.Float32bits(v.Scalar))
	case IsText:
		plugin := appendText(nil, pluginName, "text")
		m = appendBytes(m, valueMetadata, appendBytes(nil, metadataPlugin, plugin))
		tensor := appendInt(nil, tensorDType, dtypeString)
		tensor = appendBytes(tensor, tensorShape, nil) // a scalar
		m = appendBytes(m, valueTensor, appendText(tensor, tensorStrings, v.Text))
	case IsHistogram:
		m = appendBytes(m, valueHistogram, v.Histogram.encode())
	case ForPlugin:
		plugin := appendBytes(appendText(nil, pluginName, v.Plugin), pluginContent, v.Content)
		m = appendBytes(m, valueMetadata, appendBytes(nil, metadataPlugin, plugin))
		m = appendBytes(m, valueTensor, appendBytes(appendInt(nil, tensorDType, dtypeFloat), tensorShape, nil)) // empty
	}
	return m
}

func appendInt(m []byte, field protowire.Number, x uint64) []byte {
	return protowire.AppendVarint(protowire.AppendTag(m, field, protowire.VarintType), x)
}

func appendDouble(m []byte, field protowire.Number, x float64) []byte {
	return protowire.AppendFixed64(protowire.AppendTag(m, field, protowire.Fixed64Type), math.Float64bits(x))
}

func appendBytes(m []byte, field protowire.Number, x []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(m, field, protowire.BytesType), x)
}

func appendText(m []byte, field protowire.Number, x string) []byte {
	return protowire.AppendString(protowire.AppendTag(m, field, protowire.BytesType), x)
}
