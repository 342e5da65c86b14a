package fit

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/tpustrategy/tpustrategy/report/events"
)

// EventsOptions configure an [Events] hook. The zero value works.
type EventsOptions struct {
	// Now returns the wall time of the events; nil is time.Now.
	Now func() time.Time
	// Host is the name of the machine in the file's name; empty is os.Hostname.
	Host string
}

// Events writes the metrics of each record to a TensorBoard event file in a directory, which it
// makes: scalars by the metrics' names. `tensorboard --logdir` shows them.
//
// A record is in the file when the hook returns. A run that resumes writes a new file, which says
// from which step it goes on, so that TensorBoard drops what the run takes again. A new run refuses
// a directory that has event files. Of a disk that is full, see [CSV]: it is the same here.
func Events(dir string, opts ...EventsOptions) Hook {
	o, wrong := only("hook events "+dir, opts)
	l := &eventLog{dir: dir, opts: o}
	return Hook{Name: "events " + dir, wrong: wrong, Files: []string{dir}, reset: func() { *l = eventLog{dir: l.dir, opts: l.opts} },
		Begin: func(_ context.Context, s *State) error { return l.begin(s) },
		Record: func(_ context.Context, s *State) error {
			if s.First() {
				l.add(s)
			}
			return nil
		},
		Save: l.save, Load: func(saved []byte) error {
			if len(saved) == 0 {
				return nil
			}
			return json.Unmarshal(saved, &l.kept)
		},
		End: func(context.Context, *State, error) error { return l.end() },
	}
}

// eventLog is a file of events.
type eventLog struct {
	dir  string
	opts EventsOptions
	file *events.Writer
	kept [][]byte // by an earlier process
	full bool     // the last write failed
}

func (l *eventLog) begin(s *State) (err error) {
	if !s.First() {
		return nil
	}
	opts := events.Options{Now: l.opts.Now, Host: l.opts.Host, Alone: !s.Resumes()}
	if s.Resumes() {
		opts.Restart = s.From()
	}
	if l.file, err = events.Create(l.dir, opts); err != nil {
		return err
	}
	l.file.Keep(l.kept)
	return nil
}

// add writes a record. A disk that is full is a warning.
func (l *eventLog) add(s *State) {
	e := events.Event{Step: s.Step()}
	for _, m := range s.Metrics() {
		e.Values = append(e.Values, events.Scalar(m.Name, m.Value))
	}
	err := l.file.Write(e)
	if err != nil && !l.full {
		s.Warn("fit: events are kept until there is room for them", "file", l.file.Path(), "error", err)
	}
	l.full = err != nil
}

// save brings the file to the disk, and returns the events that are not in it.
func (l *eventLog) save() ([]byte, error) {
	if l.file == nil {
		return nil, nil
	}
	if l.file.Flush() == nil {
		_ = l.file.Sync() // the events are to look at: training does not stop for them
	}
	if len(l.file.Kept()) == 0 {
		return nil, nil
	}
	return json.Marshal(l.file.Kept())
}

func (l *eventLog) end() error {
	if l.file == nil {
		return nil
	}
	err := l.file.Flush()
	if err != nil {
		bytes := 0
		for _, record := range l.file.Kept() {
			bytes += len(record)
		}
		err = &WriteError{Path: l.file.Path(), Bytes: bytes, Err: err}
	}
	if closed := l.file.Close(); err == nil {
		err = errors.Join(err, closed)
	}
	l.file = nil
	return err
}
