package curve

import (
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"math"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/tpustrategy/tpustrategy/errkind"
)

// ReadCSV reads the table of a run in the format of package fit: a first line with the names of the
// columns, and one line per record. It returns one series per column except step and epoch. An
// empty cell is a value that was not measured. An incomplete last line, for example of a killed
// process, is ignored. An error contains the line and the column that cannot be read.
func ReadCSV(r io.Reader) ([]Series, error) {
	wrong := func(line int, column, reason string, err error) error {
		where := ""
		if line > 0 {
			where = fmt.Sprintf("line %d", line)
		}
		if column != "" {
			where += fmt.Sprintf(", column %q", column)
		}
		return &errkind.Fault{Op: "curve: read table", Subject: where, Reason: reason, Err: err, Class: errkind.ValueError,
			Hint: "give a CSV file whose first line names the columns, one of them step, and whose cells are numbers or empty"}
	}
	if r == nil {
		return nil, wrong(0, "", "the reader is nil", nil)
	}
	in := csv.NewReader(r)
	in.FieldsPerRecord = -1
	rows, err := in.ReadAll()
	if parse := (*csv.ParseError)(nil); errors.As(err, &parse) {
		return nil, wrong(parse.Line, "", "", parse.Err)
	}
	if err != nil || len(rows) == 0 {
		return nil, wrong(0, "", map[bool]string{true: "it is empty"}[err == nil], err)
	}
	header, rows := rows[0], rows[1:]
	header[0] = strings.TrimPrefix(header[0], "\ufeff")
	step := slices.Index(header, "step")
	if step < 0 {
		return nil, wrong(1, "", fmt.Sprintf("none of the columns %q is step", header), nil)
	}
	if n := len(rows); n > 0 && len(rows[n-1]) < len(header) {
		rows = rows[:n-1]
	}
	steps := make([]float64, len(rows))
	for i, row := range rows {
		if len(row) != len(header) {
			return nil, wrong(i+2, "", fmt.Sprintf("%d cells, and %d columns", len(row), len(header)), nil)
		}
		if steps[i], err = strconv.ParseFloat(row[step], 64); err != nil || math.IsNaN(steps[i]) || math.IsInf(steps[i], 0) {
			return nil, wrong(i+2, "step", fmt.Sprintf("%q is no step", row[step]), nil)
		}
	}
	var out []Series
	for column, name := range header {
		if name != "epoch" && slices.Index(header, name) < column {
			return nil, wrong(1, name, "it is there twice", nil)
		}
		if name == "step" || name == "epoch" {
			continue
		}
		s := Series{Name: name}
		for i, row := range rows {
			if row[column] == "" {
				continue
			}
			v, err := strconv.ParseFloat(row[column], 64)
			if err != nil && !errors.Is(err, strconv.ErrRange) {
				return nil, wrong(i+2, name, fmt.Sprintf("%q is no number", row[column]), nil)
			}
			s.Points = append(s.Points, Point{steps[i], v})
		}
		out = append(out, s)
	}
	return out, nil
}

// Learning returns a plot of the series of one or several runs with common settings. names are the
// series to plot; without names it plots the series with "loss" in their names. Series with many
// steps are smoothed. If the plot contains other series, learning_rate and accuracy each have their
// own axis. If no series has one of the given names, or if there is nothing to plot, the error
// matches [ErrPlot].
func Learning(title string, series []Series, names ...string) (Plot, error) {
	p := Plot{Title: title}
	var have []string
	for _, s := range series {
		if !slices.Contains(have, s.Name) {
			have = append(have, s.Name)
		}
		if len(names) == 0 && strings.Contains(s.Name, "loss") && len(s.Points) > 0 || slices.Contains(names, s.Name) {
			p.Series = append(p.Series, s)
		}
	}
	for _, name := range names {
		if !slices.Contains(have, name) {
			return Plot{}, plotError(name, "no series has this name", fmt.Sprintf("name some of %q", have))
		}
	}
	if len(p.Series) == 0 {
		return Plot{}, plotError("", fmt.Sprintf("none of the series %q has loss in its name", have), "name those to draw")
	}
	for i, s := range p.Series {
		p.Series[i].Axis = axisOf(s.Name)
		if s.Name != "learning_rate" && len(s.Points) > 50 {
			p.Series[i].Smooth = 0.9
		}
	}
	if !slices.ContainsFunc(p.Series, func(s Series) bool { return s.Axis == "" }) {
		p.Y = p.Series[0].Axis
		for i := range p.Series {
			if p.Series[i].Axis == p.Y {
				p.Series[i].Axis = ""
			}
		}
	}
	return p, nil
}

// axisOf returns the title of the value axis on which a series is drawn, or "" for the left axis.
func axisOf(name string) string {
	switch {
	case name == "learning_rate":
		return "learning rate"
	case strings.HasSuffix(name, "accuracy"):
		return "accuracy"
	}
	return ""
}

// Title returns a title for a plot of runs. Each path is the folder of a run, or the table of a
// run.
func Title(paths ...string) string {
	names := RunNames(paths)
	if len(names) == 1 {
		return "Learning curve of " + names[0]
	}
	return "Learning curves of " + strings.Join(names, ", ")
}

// RunNames returns names for runs. The name of a run is the base name of its folder or table. If
// these base names are not unique, the names are the paths.
func RunNames(paths []string) (names []string) {
	seen := map[string]bool{}
	for _, path := range paths {
		if absolute, err := filepath.Abs(path); err == nil {
			path = absolute
		}
		name := filepath.Base(path)
		if name == "losses.csv" { // the table of every run
			name = filepath.Base(filepath.Dir(path))
		}
		if seen[name] {
			return paths
		}
		seen[name] = true
		names = append(names, name)
	}
	return names
}
