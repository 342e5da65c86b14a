package main

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/tpustrategy/tpustrategy/internal/files"
	"github.com/tpustrategy/tpustrategy/report/curve"
)

// maxTable is the maximum size of a table in bytes. A table of a million rows has about 100 MB.
const maxTable = 256 << 20

type curveCmd struct {
	Runs   []string `arg:"" name:"run" help:"Folder of a run, or a CSV table that package fit wrote."`
	Output string   `short:"o" help:"Page to write; the name ends in .html." default:"curve.html" type:"localpath"`
	Series []string `help:"Columns to draw. Default: those with loss in their names."`
	Title  string   `help:"Title of the page. Default: the names of the runs."`
	LogX   bool     `help:"Make the axis of steps logarithmic."`
	LogY   bool     `help:"Make the axis of values logarithmic."`
}

func (curveCmd) Help() string {
	return `Draws the learning curves of one or several runs in one chart, as a page for a browser. The page can zoom, hide lines and runs, make axes logarithmic, and show measured or smoothed values.

Examples:
  tpustrategy curve run
  tpustrategy curve run1 run2 run3 -o compare.html
  tpustrategy curve run/losses.csv --series loss,held/accuracy,learning_rate

Series with many steps are smoothed. Accuracy and learning_rate have axes of their own.`
}

// curveAnswer is the JSON output of the curve command.
type curveAnswer struct {
	Output string        `json:"output"`
	Series []curveSeries `json:"series"`
}

type curveSeries struct {
	Run  string `json:"run,omitempty"`
	Name string `json:"name"`
	curve.Figures
}

func (c *curveCmd) Run(a *app, root *cli) error {
	if err := curve.CheckPath(c.Output); err != nil {
		return &usageError{Err: err}
	}
	var series []curve.Series
	names := curve.RunNames(c.Runs)
	for i, path := range c.Runs {
		of, err := readRun(path)
		if err != nil {
			return err
		}
		for _, s := range of {
			if len(c.Runs) > 1 {
				s.Run = names[i]
			}
			series = append(series, s)
		}
	}
	subject, title := strings.Join(c.Runs, ", "), c.Title
	if title == "" {
		title = curve.Title(c.Runs...)
	}
	plot, err := curve.Learning(title, series, c.Series...)
	if err != nil {
		return newUsageError(subject, err)
	}
	plot.LogX, plot.LogY = c.LogX, c.LogY
	if _, err := plot.HTML(); err != nil {
		return newUsageError(subject, err)
	}
	if err := plot.Save(c.Output); err != nil {
		return err
	}
	answer := curveAnswer{Output: c.Output}
	for _, s := range plot.Series {
		answer.Series = append(answer.Series, curveSeries{s.Run, s.Name, s.Figures()})
	}
	if root.JSON {
		return a.printJSON(answer)
	}
	fmt.Fprintf(a.stdout, "%s:", c.Output)
	for i, s := range answer.Series {
		name := s.Name
		if s.Run != "" {
			name = s.Run + " " + name
		}
		fmt.Fprintf(a.stdout, "%s %s (%d values)", map[bool]string{true: ","}[i > 0], name, s.Points)
	}
	fmt.Fprintln(a.stdout)
	a.printWrittenFiles(c.Output)
	return nil
}

// readRun reads the table of a run. path is a CSV file, or a folder that contains losses.csv from
// package fit/trainer or a single CSV file.
func readRun(path string) ([]curve.Series, error) {
	if err := files.CheckLocal(path); err != nil {
		return nil, &usageError{Err: err}
	}
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		tables, _ := fs.Glob(os.DirFS(path), "*.csv") // the pattern is valid
		switch {
		case slices.Contains(tables, "losses.csv"):
			path = filepath.Join(path, "losses.csv")
		case len(tables) == 1:
			path = filepath.Join(path, tables[0])
		default:
			return nil, usageErrorf(path, "give the table of the run that is meant",
				"of the tables %q in the folder, none is losses.csv", tables)
		}
	}
	data, err := files.ReadFile(path, maxTable)
	if err != nil {
		return nil, newUsageError("curve", err)
	}
	series, err := curve.ReadCSV(bytes.NewReader(data))
	if err != nil {
		return nil, newUsageError(path, err)
	}
	return series, nil
}
