package events

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/internal/files"
)

// Options configure a [Writer]. The zero value works.
type Options struct {
	// Now returns the wall time of events. The default is time.Now.
	Now func() time.Time
	// Host is the host name in the file's name. The default is os.Hostname.
	Host string
	// Restart is the step at which a restarted run resumes. Readers discard the events of earlier
	// files of the directory from this step on. It is 0 for a new run.
	Restart int64
	// Alone makes [Create] fail if the directory already contains event files.
	Alone bool
}

// ErrTaken matches the error of [Create] for a directory with event files, if Options.Alone is set.
var ErrTaken = errkind.New(errkind.ValueError, "events: the directory has event files of another run")

// Writer writes an event file. When Write returns without an error, the complete event is in the
// file. After an error, the file does not contain a part of the event. A Writer is not safe for
// concurrent use.
type Writer struct {
	path string
	file *files.Appender
	now  func() time.Time
	// kept are records that could not be written because the disk was full.
	kept [][]byte
}

// Create creates an event file in a directory, which is created if necessary. The name of the file
// sorts after the existing files, because TensorBoard reads them in name order.
func Create(dir string, opts Options) (*Writer, error) {
	if err := files.CheckLocal(dir); err != nil {
		return nil, err
	}
	if opts.Now == nil {
		opts.Now = time.Now
	}
	fail := func(err error) error { return &errkind.Fault{Op: "events: create", Subject: dir, Err: err} }
	if opts.Host == "" {
		var err error
		if opts.Host, err = os.Hostname(); err != nil {
			opts.Host = "localhost"
		}
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fail(err)
	}
	earlier, err := latest(dir)
	if err != nil {
		return nil, fail(err)
	}
	if earlier >= 0 && opts.Alone {
		return nil, &errkind.Fault{Match: ErrTaken, Subject: dir, Hint: "give another directory"}
	}
	w := &Writer{now: opts.Now}
	second := max(opts.Now().Unix(), earlier+1)
	w.path = filepath.Join(dir, FileName(second, opts.Host, os.Getpid()))
	if w.file, err = files.OpenAppender(w.path, true); err != nil {
		return nil, fail(err)
	}
	// TensorBoard treats the first start in a directory as the start of a new run, whatever its
	// step is.
	head := Event{Time: opts.Now(), Version: Version}.Append(nil)
	head = Event{Time: opts.Now(), Step: opts.Restart, Session: Start}.Append(head)
	if err := w.file.Append(head); err != nil {
		return nil, fail(errors.Join(err, w.file.Close(), os.Remove(w.path)))
	}
	return w, nil
}

// FileName returns the name of an event file that was created at the given Unix time in seconds.
func FileName(second int64, host string, pid int) string {
	host = strings.Map(func(r rune) rune {
		if r == '/' || r == filepath.Separator {
			return '_'
		}
		return r
	}, host)
	return fmt.Sprintf("events.out.tfevents.%010d.%s.%d.0", second, host, pid)
}

var eventFile = regexp.MustCompile(`^events\.out\.tfevents\.(\d+)\.`)

// latest returns the time in the name of the last event file in a directory, in Unix seconds, or -1
// if there is no event file.
func latest(dir string) (int64, error) {
	entries, err := os.ReadDir(dir)
	last := int64(-1)
	for _, entry := range entries {
		if m := eventFile.FindStringSubmatch(entry.Name()); m != nil {
			if second, err := strconv.ParseInt(m[1], 10, 64); err == nil {
				last = max(last, second)
			}
		}
	}
	return last, err
}

// Path returns the path of the file.
func (w *Writer) Path() string { return w.path }

// Write appends an event to the file. An event without a time gets the current time. After an
// error, such as a full disk, the Writer keeps the event, and the next Write or Flush writes it
// first. An unknown session or kind is a ValueError, and the event is discarded.
func (w *Writer) Write(e Event) error {
	if err := e.check(); err != nil {
		return err
	}
	if e.Time.IsZero() {
		e.Time = w.now()
	}
	w.kept = append(w.kept, e.Append(nil))
	return w.Flush()
}

// Flush writes the events that previous calls of Write could not write, for example because the
// disk was full.
func (w *Writer) Flush() error {
	for len(w.kept) > 0 {
		if err := w.file.Append(w.kept[0]); err != nil {
			return &errkind.Fault{Op: "events: write", Subject: w.path, Err: err, Hint: "make room; the Writer keeps the events"}
		}
		w.kept = w.kept[1:]
	}
	return nil
}

// Kept returns the records that could not be written to the file. The Writer still writes them
// later. They can be passed to Keep of another Writer.
func (w *Writer) Kept() [][]byte { return w.kept }

// Keep adds the records that another Writer could not write. They are written before the next
// event.
func (w *Writer) Keep(records [][]byte) { w.kept = append(w.kept, records...) }

// Sync flushes the written events to disk.
func (w *Writer) Sync() error { return w.file.Sync() }

// Close writes the remaining events and closes the file. A second Close has no effect.
func (w *Writer) Close() error {
	if w == nil || w.file == nil {
		return nil
	}
	err := w.Flush()
	return errors.Join(err, w.file.Close())
}
