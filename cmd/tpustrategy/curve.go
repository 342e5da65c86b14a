package main

import (
	"bytes"
	"fmt"
	"path/filepath"

	"github.com/tpustrategy/tpustrategy/internal/files"
	"github.com/tpustrategy/tpustrategy/report/curve"
)

// maxTable bounds a table that is read: a million records have a hundred megabytes.
const maxTable = 256 << 20

type curveCmd struct {
	Table  string   `arg:"" help:"A table that package strategy/fit wrote of a run, as CSV." type:"localpath"`
	Output string   `help:"The picture to write: a name that ends in .svg or .html." short:"o" required:"" type:"localpath"`
	Series []string `help:"The columns to draw; without it, those that have loss in their names."`
	Title  string   `help:"The picture's title; without it, the table's name."`
	LogX   bool     `help:"Make the axis of steps logarithmic."`
	LogY   bool     `help:"Make the axis of values logarithmic."`
}

// Help is the text under --help.
func (curveCmd) Help() string {
	return `Draws a run's learning curve, as a picture or as a page that shows the values under the pointer.

Examples:
  tpustrategy curve run.csv -o curve.svg
  tpustrategy curve run.csv -o curve.html --series loss,held/loss,learning_rate

What was measured at many steps is smoothed, and learning_rate has an axis of its own.`
}

// drawn is the answer as JSON.
type drawn struct {
	Output string        `json:"output"`
	Series []drawnSeries `json:"series"`
}

type drawnSeries struct {
	Name   string `json:"name"`
	Points int    `json:"points"`
}

// Run draws the table.
func (c *curveCmd) Run(a *app, root *cli) error {
	if err := curve.CheckPath(c.Output); err != nil {
		return &usageError{Err: err}
	}
	data, err := files.Read(c.Table, maxTable)
	if err != nil {
		return refused("curve", err)
	}
	series, err := curve.ReadCSV(bytes.NewReader(data))
	if err != nil {
		return refused(c.Table, err)
	}
	title := c.Title
	if title == "" {
		title = filepath.Base(c.Table)
	}
	plot, err := curve.Learning(title, series, c.Series...)
	if err != nil {
		return refused(c.Table, err)
	}
	plot.LogX, plot.LogY = c.LogX, c.LogY
	if _, err := plot.SVG(); err != nil {
		return refused(c.Table, err)
	}
	if err := plot.Save(c.Output); err != nil {
		return err
	}
	answer := drawn{Output: c.Output}
	for _, s := range plot.Series {
		answer.Series = append(answer.Series, drawnSeries{s.Name, len(s.Points)})
	}
	if root.JSON {
		return a.printJSON(answer)
	}
	fmt.Fprintf(a.stdout, "%s shows", c.Output)
	for i, s := range answer.Series {
		fmt.Fprintf(a.stdout, "%s %s (%d values)", map[bool]string{true: ","}[i > 0], s.Name, s.Points)
	}
	fmt.Fprintln(a.stdout)
	return nil
}
