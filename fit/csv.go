package fit

import (
	"bytes"
	"context"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strconv"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/internal/files"
	"github.com/tpustrategy/tpustrategy/storage"
)

// CSV writes a table with one row for each record (see [Options].Every) to a file in the format of
// RFC 4180. The columns are step, epoch and one column for each metric. The cell of a metric that
// was not measured is empty. If a new metric appears later in the run, the hook rewrites the file
// with an additional column.
//
// The path is a file or the URL of an object; see package storage. A file contains the row of a
// record when the hook returns, so a killed process loses at most one row. An object store cannot
// append, so the hook uploads the complete table with each checkpoint of the [Checkpoint] hook and
// at the end of the run. A table above 1 MiB is uploaded less often, so that uploads use less than
// a twentieth of the time. Each checkpoint contains the rows that are not uploaded yet.
//
// A resumed run first removes the rows of the steps that it runs again, and adds the rows that the
// checkpoint contains. A new run returns an error if the table exists.
//
// If the disk is full or the store is unreachable, the hook logs a warning and writes the rows
// later. If rows are still missing at the end, the run's error matches [ErrWrite], and the last
// checkpoint contains the rows.
func CSV(path string) Hook {
	c := &csvTable{path: path}
	return Hook{Name: "csv " + path, Files: []string{path}, reset: func() { *c = csvTable{path: path} },
		Begin: func(ctx context.Context, s *State) error { return c.begin(ctx, s) },
		Record: func(_ context.Context, s *State) error {
			if s.IsChief() {
				c.addRecord(s)
			}
			return nil
		},
		Save: c.save, Load: c.load,
		End: func(_ context.Context, s *State, _ error) error { return c.close() },
	}
}

// Names of the first two columns.
const stepColumn, epochColumn = "step", "epoch"

// maxTableBytes is the maximum size of a table that a resumed run can read.
const maxTableBytes = 1 << 30

type csvTable struct {
	path  string
	state *State
	file  tableFile
	// object has the same value as file if path is a URL, and is nil otherwise. unsynced contains
	// the rows that object has in memory and has not uploaded.
	object   *tableObject
	unsynced []csvRow
	// columns are the metric columns, without step and epoch.
	columns []string
	// lastStep is the step of the last row in the file.
	lastStep int64
	// pending contains the rows that are not in the file yet.
	pending     []csvRow
	writeFailed bool
	// syncFailed reports that the last upload failed.
	syncFailed bool
}

// csvRow contains the metrics of one record.
type csvRow struct {
	Step, Epoch int64
	Names       []string
	Values      []string // text, because JSON has no NaN
}

func (c *csvTable) open(ctx context.Context, isNew bool) (err error) {
	if storage.IsURL(c.path) {
		if c.object, err = openTableObject(ctx, c.path, isNew); err == nil {
			c.file = c.object
		}
		return err
	}
	file, err := files.OpenAppender(c.path, isNew)
	if err == nil {
		c.file = file
	}
	return err
}

// begin opens the table. In a resumed run it removes the rows of the steps that are run again.
func (c *csvTable) begin(ctx context.Context, s *State) (err error) {
	c.state = s
	if !s.IsChief() {
		return nil
	}
	if err = c.open(s.runner.withoutInterrupt(ctx), !s.ResumeEnabled()); errors.Is(err, fs.ErrExist) {
		return &errkind.Fault{Op: "fit: csv", Subject: c.path, Err: err, Class: errkind.ValueError,
			Hint: "give a new file, or resume the run that wrote it"}
	} else if err != nil {
		return err
	}
	if c.file.Size() > 0 {
		if err := c.truncateFrom(s.NextRecordStep()); err != nil {
			return err
		}
	}
	c.columns = slices.Concat(c.columns, missingNames(c.columns, s.knownMetricNames()))
	c.pending = slices.DeleteFunc(c.pending, func(r csvRow) bool { return r.Step <= c.lastStep })
	if c.file.Size() > 0 {
		return c.flush()
	}
	if err := c.addColumns(nil); err != nil || c.object == nil {
		return err
	}
	return c.object.Sync() // an unwritable store is an error before the first step
}

// missingNames returns the names that columns does not contain, without duplicates.
func missingNames(columns, names []string) (more []string) {
	for _, name := range names {
		if !slices.Contains(columns, name) && !slices.Contains(more, name) {
			more = append(more, name)
		}
	}
	return more
}

// truncateFrom removes the rows of step firstStep and later steps, and a last row that is
// incomplete. It also reads the header.
func (c *csvTable) truncateFrom(firstStep int64) error {
	data, err := c.file.Bytes(maxTableBytes)
	if err != nil {
		return err
	}
	wrong := func(reason string, args ...any) error {
		return &errkind.Fault{Op: "fit: csv", Subject: c.path, Reason: fmt.Sprintf(reason, args...),
			Class: errkind.DataLossError,
			Hint:  "give a new file, or the one that the run wrote"}
	}
	complete := bytes.LastIndexByte(data, '\n') + 1
	if complete == 0 { // the process was killed before the header was written
		return c.file.Truncate(0)
	}
	r := csv.NewReader(bytes.NewReader(data[:complete]))
	header, err := r.Read()
	if err != nil || len(header) < 2 || header[0] != stepColumn || header[1] != epochColumn {
		return wrong("its first line is not that of a run")
	}
	c.columns = header[2:]
	for {
		offset := r.InputOffset()
		record, err := r.Read()
		if err == io.EOF {
			return c.file.Truncate(int64(complete))
		}
		if err != nil {
			return wrong("%v", err)
		}
		step, err := strconv.ParseInt(record[0], 10, 64)
		if err != nil || step <= c.lastStep {
			return wrong("the row after step %d begins with %q", c.lastStep, record[0])
		}
		if step >= firstStep && firstStep > 0 { // an overflowed firstStep truncates nothing
			return c.file.Truncate(offset)
		}
		c.lastStep = step
	}
}

// addRecord writes the row of the current record. If that fails, it logs a warning and keeps the
// row.
func (c *csvTable) addRecord(s *State) {
	r := csvRow{Step: s.Step(), Epoch: s.Epoch()}
	for _, m := range s.Metrics() {
		r.Names, r.Values = append(r.Names, m.Name), append(r.Values, strconv.FormatFloat(m.Value, 'g', -1, 64))
	}
	c.pending = append(c.pending, r)
	err := c.flush()
	if err != nil && !c.writeFailed {
		s.Warn("fit: rows are kept in memory until they can be written", "file", c.path, "error", err)
	}
	c.writeFailed = err != nil
}

// flush writes the pending rows, and adds columns for new metrics.
func (c *csvTable) flush() error {
	var names []string
	for _, r := range c.pending {
		names = append(names, r.Names...)
	}
	if more := missingNames(c.columns, names); len(more) > 0 {
		if err := c.addColumns(more); err != nil {
			return err
		}
	}
	for len(c.pending) > 0 {
		text, err := c.encodeRow(c.pending[0])
		if err == nil {
			err = c.file.Append(text)
		}
		if err != nil {
			return err
		}
		c.lastStep = c.pending[0].Step
		if c.object != nil {
			c.unsynced = append(c.unsynced, c.pending[0])
		}
		c.pending = c.pending[1:]
	}
	return nil
}

func (c *csvTable) encodeRow(r csvRow) ([]byte, error) {
	cells := make([]string, 2+len(c.columns))
	cells[0], cells[1] = strconv.FormatInt(r.Step, 10), strconv.FormatInt(r.Epoch, 10)
	for i, name := range r.Names {
		cells[2+slices.Index(c.columns, name)] = r.Values[i]
	}
	return encodeCSV(cells)
}

func encodeCSV(records ...[]string) ([]byte, error) {
	var text bytes.Buffer
	w := csv.NewWriter(&text)
	w.UseCRLF = true // RFC 4180
	err := w.WriteAll(records)
	return text.Bytes(), err
}

func (c *csvTable) addColumns(names []string) error {
	columns := slices.Concat(c.columns, names)
	records := [][]string{slices.Concat([]string{stepColumn, epochColumn}, columns)}
	if c.file.Size() > 0 {
		data, err := c.file.Bytes(maxTableBytes)
		if err != nil {
			return err
		}
		rows, err := csv.NewReader(bytes.NewReader(data)).ReadAll()
		if err != nil {
			return err
		}
		for _, cells := range rows[1:] {
			records = append(records, append(cells, make([]string, len(records[0])-len(cells))...))
		}
	}
	text, err := encodeCSV(records...)
	if err != nil {
		return err
	}
	if c.object != nil {
		c.object.text, c.object.dirty, c.columns = text, true, columns
		return nil
	}
	err = files.Replace(c.path, func(w io.Writer) error {
		_, err := w.Write(text)
		return err
	})
	if err != nil {
		return err
	}
	file, err := files.OpenAppender(c.path, false)
	if err != nil {
		return err
	}
	err = c.file.Close()
	c.file, c.columns = file, columns
	return err
}

// save syncs the file to disk, or uploads the object if an upload is due. It returns the rows that
// are not stored yet.
func (c *csvTable) save() ([]byte, error) {
	if c.file == nil {
		return nil, nil
	}
	err := c.flush()
	switch {
	case err != nil:
	case c.object == nil:
		_ = c.file.Sync() // training continues after an error
	case c.state.runner.isMainSave && c.object.shouldSync():
		if err = c.syncObject(); err != nil && !c.syncFailed {
			c.state.Warn("fit: rows are kept in memory until the store accepts them", "table", c.path, "error", err)
		}
		c.syncFailed = err != nil
	}
	missing := slices.Concat(c.unsynced, c.pending)
	if len(missing) == 0 {
		return nil, nil
	}
	return json.Marshal(missing)
}

func (c *csvTable) syncObject() error {
	err := c.object.Sync()
	if err == nil {
		c.unsynced = nil
	}
	return err
}

func (c *csvTable) load(saved []byte) error {
	if len(saved) == 0 {
		return nil
	}
	if err := json.Unmarshal(saved, &c.pending); err != nil {
		return err
	}
	for _, r := range c.pending {
		if len(r.Names) != len(r.Values) {
			return &errkind.Fault{Op: "fit: csv", Reason: "a saved row is damaged", Class: errkind.DataLossError}
		}
	}
	return nil
}

func (c *csvTable) close() error {
	if c.file == nil {
		return nil
	}
	err := c.flush()
	if err == nil && c.object != nil {
		err = c.syncObject()
	}
	if err != nil {
		unsaved, _ := json.Marshal(slices.Concat(c.unsynced, c.pending))
		err = writeError(c.path, len(unsaved), err)
	}
	err = errors.Join(err, c.file.Close())
	c.file = nil
	return err
}
