package xspace

import (
	"path"
	"time"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/tpustrategy/tpustrategy/errkind"
)

// Event is an activity with a start time and a duration.
type Event struct {
	Name  string
	Begin time.Time
	Took  time.Duration
	// Step is the number of the training step if the event is a step, from 1, and 0 for other
	// events.
	Step int64
}

// Line is a timeline with events, such as the events of one goroutine.
type Line struct {
	Name   string
	Events []Event
}

// Profile is a recording of the activity of one host.
type Profile struct {
	// Begin and End are the wall times of the start and the end of the recording.
	Begin, End time.Time
	// Host is the host's name.
	Host string
	// Lines are the activities of the host.
	Lines []Line
	// Devices is the recording of a plugin, an encoded XSpace, or nil.
	Devices []byte
}

// Path returns the slash-separated path, relative to a log directory, at which profiling tools
// expect the profile of a host. The profiles of all hosts of a run must be stored with the same
// name run.
func Path(run, host string) string {
	return path.Join("plugins", "profile", run, host+".xplane.pb")
}

// The fields of the messages, by tsl/profiler/protobuf/xplane.proto.
const (
	spacePlanes, spaceHosts                                  = 1, 4
	planeName, planeLines, planeEvents, planeStats, planeOwn = 2, 3, 4, 5, 6
	lineID, lineName, lineBegin, lineEvents                  = 1, 2, 3, 4
	eventKind, eventOffset, eventDuration, eventStats        = 1, 2, 3, 4
	statKind, statUnsigned, statSigned                       = 1, 3, 4
	entryKey, entryValue                                     = 1, 2
	metadataID, metadataName                                 = 1, 2
)

// The names of statistics that the tools use.
const (
	statStep, statRoot        = 1, 2
	statProfiled, statStopped = 1, 2
)

// Encode returns the profile as an XSpace. Malformed Devices are an error of kind ValueError.
func (p Profile) Encode() ([]byte, error) {
	b, err := since(p.Devices, uint64(p.Begin.UnixNano()))
	if err != nil {
		return nil, err
	}
	b = message(b, spacePlanes, p.host())
	b = message(b, spacePlanes, p.environment())
	return message(b, spaceHosts, []byte(p.Host)), nil
}

// host returns the plane (a part of an XSpace) with the events of the host.
func (p Profile) host() []byte {
	plane := message(nil, planeName, []byte("/host:CPU"))
	kinds := map[string]uint64{}
	for i, l := range p.Lines {
		line := number(nil, lineID, uint64(i+1))
		line = message(line, lineName, []byte(l.Name))
		for _, e := range l.Events {
			kind := kinds[e.Name]
			if kind == 0 {
				kind = uint64(len(kinds) + 1)
				kinds[e.Name] = kind
				plane = named(plane, planeEvents, kind, e.Name)
			}
			event := number(nil, eventKind, kind)
			event = number(event, eventOffset, picoseconds(e.Begin.Sub(p.Begin)))
			event = number(event, eventDuration, picoseconds(e.Took))
			if e.Step > 0 {
				event = message(event, eventStats, number(number(nil, statKind, statStep), statSigned, uint64(e.Step)))
				event = message(event, eventStats, number(number(nil, statKind, statRoot), statSigned, 1))
			}
			line = message(line, lineEvents, event)
		}
		plane = message(plane, planeLines, line)
	}
	plane = named(plane, planeStats, statStep, "step_num")
	return named(plane, planeStats, statRoot, "_r")
}

// environment returns the plane (a part of an XSpace) with the start and end time of the recording.
func (p Profile) environment() []byte {
	plane := message(nil, planeName, []byte("Task Environment"))
	plane = named(plane, planeStats, statProfiled, "profile_start_time")
	plane = named(plane, planeStats, statStopped, "profile_stop_time")
	plane = message(plane, planeOwn, number(number(nil, statKind, statProfiled), statUnsigned, uint64(p.Begin.UnixNano())))
	return message(plane, planeOwn, number(number(nil, statKind, statStopped), statUnsigned, uint64(p.End.UnixNano())))
}

// since returns a copy of an XSpace in which the start times of lines are relative to begin.
func since(space []byte, begin uint64) ([]byte, error) {
	return edit(space, spacePlanes, inside(planeLines, inside(lineBegin, func(value []byte) ([]byte, error) {
		if at, n := protowire.ConsumeVarint(value); n == len(value) && at >= begin {
			return protowire.AppendVarint(nil, at-begin), nil
		}
		return value, nil
	})))
}

// inside returns a function that edits a field within an encoded message. The function decodes the
// message and replaces the values of the field by the results of do. of is the number of the field.
func inside(of protowire.Number, do func(value []byte) ([]byte, error)) func(value []byte) ([]byte, error) {
	return func(value []byte) ([]byte, error) {
		m, n := protowire.ConsumeBytes(value)
		if n != len(value) {
			return value, nil // another type
		}
		changed, err := edit(m, of, do)
		return protowire.AppendBytes(nil, changed), err
	}
}

// edit returns a copy of a message in which the values of one field are replaced by the results of
// do. of is the number of the field.
func edit(m []byte, of protowire.Number, do func(value []byte) ([]byte, error)) (out []byte, err error) {
	for len(m) > 0 {
		if len(m) == 1 && m[0] == 0 { // libtpu appends a byte that is not part of the message
			break
		}
		field, kind, n := protowire.ConsumeTag(m)
		size := protowire.ConsumeFieldValue(field, kind, m[max(n, 0):])
		if n < 0 || size < 0 {
			return nil, malformed(n, size)
		}
		value := m[n : n+size]
		if field == of {
			if value, err = do(value); err != nil {
				return nil, err
			}
		}
		out, m = append(append(out, m[:n]...), value...), m[n+size:]
	}
	return out, nil
}

func malformed(n, size int) error {
	return &errkind.Fault{Op: "xspace: read what the plugin recorded", Reason: "it is no XSpace",
		Class: errkind.ValueError, Err: protowire.ParseError(min(n, size))}
}

// named adds an entry to a protobuf map from ids to metadata. The metadata consists of the id and a
// name.
func named(b []byte, field protowire.Number, id uint64, name string) []byte {
	value := message(number(nil, metadataID, id), metadataName, []byte(name))
	return message(b, field, message(number(nil, entryKey, id), entryValue, value))
}

func number(b []byte, field protowire.Number, v uint64) []byte {
	return protowire.AppendVarint(protowire.AppendTag(b, field, protowire.VarintType), v)
}

func message(b []byte, field protowire.Number, m []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(b, field, protowire.BytesType), m)
}

// picoseconds returns a time since the start of the recording in picoseconds, the unit of events.
// Negative times become 0.
func picoseconds(d time.Duration) uint64 { return uint64(max(0, d)) * 1000 }
