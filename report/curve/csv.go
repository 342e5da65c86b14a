package curve

import (
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/tpustrategy/tpustrategy/errkind"
)

// TableError reports what of a table cannot be read.
type TableError struct {
	Line   int    // from 1; 0 where the error is of the whole table
	Column string // its name; "" where the error is of the whole line
	Reason string
	Err    error
}

func (e *TableError) Error() string {
	what := "curve: read table"
	if e.Line > 0 {
		what += fmt.Sprintf(": line %d", e.Line)
	}
	if e.Column != "" {
		what += fmt.Sprintf(", column %q", e.Column)
	}
	return errkind.Text(what, e.Reason, e.Err, "give a CSV file whose first line names the columns, one of them step, and whose cells are numbers or empty")
}

// Kind returns the cause's kind, or ValueError.
func (e *TableError) Kind() errkind.Kind { return errkind.Or(e.Err, errkind.ValueError) }

// Unwrap returns the cause.
func (e *TableError) Unwrap() error { return e.Err }

// ReadCSV reads the table that package strategy/fit writes of a run: a first line that names the
// columns, and a line for each record. It returns a series for each column but step and epoch. An
// empty cell is a value that was not measured. A last line that ends in the midst, as that of a
// process that was killed, is left out. Errors are a [*TableError].
func ReadCSV(r io.Reader) ([]Series, error) {
	in := csv.NewReader(r)
	in.FieldsPerRecord = -1
	in.ReuseRecord = true
	header, err := in.Read()
	if err != nil {
		if err == io.EOF {
			return nil, &TableError{Reason: "it is empty"}
		}
		return nil, &TableError{Line: 1, Err: err}
	}
	header = slices.Clone(header)
	header[0] = strings.TrimPrefix(header[0], "\ufeff")
	step := slices.Index(header, "step")
	if step < 0 {
		return nil, &TableError{Line: 1, Reason: fmt.Sprintf("none of the columns %q is step", header)}
	}
	columns := make([]*Series, len(header))
	var out []Series
	for i, name := range header {
		if name != "step" && name != "epoch" {
			if slices.ContainsFunc(out, func(s Series) bool { return s.Name == name }) {
				return nil, &TableError{Line: 1, Column: name, Reason: "it is there twice"}
			}
			out = append(out, Series{Name: name})
		} else if i != step && name == "step" {
			return nil, &TableError{Line: 1, Column: name, Reason: "it is there twice"}
		}
	}
	next := 0
	for i, name := range header {
		if name != "step" && name != "epoch" {
			columns[i] = &out[next]
			next++
		}
	}
	for {
		record, err := in.Read()
		if err == io.EOF {
			return out, nil
		}
		if err != nil {
			e := &TableError{Err: err}
			var parse *csv.ParseError
			if errors.As(err, &parse) {
				e.Line, e.Err = parse.Line, parse.Err
			}
			return nil, e
		}
		line, _ := in.FieldPos(0)
		if len(record) != len(header) {
			if _, more := in.Read(); more == io.EOF && len(record) < len(header) {
				return out, nil
			}
			return nil, &TableError{Line: line, Reason: fmt.Sprintf("%d cells, and %d columns", len(record), len(header))}
		}
		at, err := strconv.ParseFloat(record[step], 64)
		if err != nil || math.IsNaN(at) || math.IsInf(at, 0) {
			return nil, &TableError{Line: line, Column: "step", Reason: fmt.Sprintf("%q is no step", record[step])}
		}
		for i, s := range columns {
			if s == nil || record[i] == "" {
				continue
			}
			v, err := strconv.ParseFloat(record[i], 64)
			if err != nil && !errors.Is(err, strconv.ErrRange) {
				return nil, &TableError{Line: line, Column: s.Name, Reason: fmt.Sprintf("%q is no number", record[i])}
			}
			s.Points = append(s.Points, Point{at, v})
		}
	}
}

// Learning returns the plot of a run's series as they are usually looked at: the named ones, or those
// whose names have "loss" in them if none are named. What is measured at many steps is smoothed; a
// series named learning_rate is on the right. A name that no series has is a [*PlotError].
func Learning(title string, series []Series, names ...string) (Plot, error) {
	p := Plot{Title: title}
	var have []string
	for _, s := range series {
		have = append(have, s.Name)
		if len(names) == 0 && strings.Contains(s.Name, "loss") && len(s.Points) > 0 {
			p.Series = append(p.Series, s)
		}
	}
	for _, name := range names {
		i := slices.Index(have, name)
		if i < 0 {
			return Plot{}, &PlotError{Series: name, Reason: "no series has this name", Hint: fmt.Sprintf("name some of %q", have)}
		}
		p.Series = append(p.Series, series[i])
	}
	if len(p.Series) == 0 {
		return Plot{}, &PlotError{Reason: fmt.Sprintf("none of the series %q has loss in its name", have), Hint: "name those to draw"}
	}
	for i, s := range p.Series {
		if s.Name == "learning_rate" {
			p.Series[i].Right, p.Right = true, "learning rate"
		} else if len(s.Points) > 50 {
			p.Series[i].Smooth = 0.9
		}
	}
	return p, nil
}
