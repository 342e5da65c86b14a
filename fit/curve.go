package fit

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/report/curve"
)

// Curve draws the learning curve of the run as a page, see package report/curve; the path ends in
// .html. It draws the metrics that are named, or those with "loss" in their names, at the end of the
// run and from time to time before; a page that is there is replaced. `tpustrategy curve` draws several
// runs in one chart, from their tables. The points are part of a checkpoint, at most 2000 of each metric: of more,
// every second one is left out.
//
// A page that cannot be drawn or written on the way is a warning. At the end a disk that is full
// matches [ErrWrite].
func Curve(path string, metrics ...string) Hook {
	c := &drawing{path: path, names: metrics}
	return Hook{Name: "curve " + path, Files: []string{path}, Needs: metrics, wrong: checkPage(path),
		reset: func() { *c = drawing{path: path, names: metrics} },
		Begin: func(_ context.Context, s *State) error {
			if !s.First() {
				return nil
			}
			return errors.Join(c.clear(s.From()), writable(filepath.Dir(path)))
		},
		Record: func(_ context.Context, s *State) error {
			c.add(s)
			if s.First() && c.due() {
				if err := c.draw(); err != nil {
					s.Warn("fit: the curve is not drawn", "file", path, "error", err)
				}
			}
			return nil
		},
		End: func(_ context.Context, s *State, _ error) error {
			if !s.First() || c.records == 0 {
				return nil
			}
			err := c.draw()
			if errors.Is(err, curve.ErrPlot) { // such as of losses that are all NaN
				s.Warn("fit: the curve is not drawn", "file", path, "error", err)
				return nil
			}
			if err != nil {
				return notWritten(path, 0, err)
			}
			return nil
		},
		Save: func() ([]byte, error) { return json.Marshal(c.saved()) },
		Load: c.load,
	}
}

// checkPage refuses a path of no page.
func checkPage(path string) error {
	if err := curve.CheckPath(path); err != nil {
		return option("hook curve "+path, "give a path that ends in .html", "it is not the name of a page")
	}
	return nil
}

// mostPoints is how many points of a metric are kept.
const mostPoints = 2000

// drawing is a learning curve.
type drawing struct {
	path    string
	names   []string
	series  []curve.Series
	records int64
	drawn   time.Time
	took    time.Duration // the last drawing
}

// add takes a record.
func (c *drawing) add(s *State) {
	c.records++
	for _, m := range s.Metrics() {
		i := slices.IndexFunc(c.series, func(of curve.Series) bool { return of.Name == m.Name })
		if i < 0 {
			i = len(c.series)
			c.series = append(c.series, curve.Series{Name: m.Name})
		}
		points := &c.series[i].Points
		*points = append(*points, curve.Point{Step: float64(s.Step()), Value: m.Value})
		if len(*points) > mostPoints {
			*points = thin(*points)
		}
	}
}

// thin leaves out every second point, but not the last.
func thin(points []curve.Point) []curve.Point {
	kept := points[:0]
	for i, p := range points {
		if i%2 == 0 || i == len(points)-1 {
			kept = append(kept, p)
		}
	}
	return kept
}

// due reports whether it is time to draw: for the first records, and then so seldom that a fiftieth
// of the time goes into it.
func (c *drawing) due() bool {
	return c.drawn.IsZero() || time.Since(c.drawn) > max(10*time.Second, 50*c.took)
}

// draw writes the page.
func (c *drawing) draw() error {
	start := time.Now()
	defer func() { c.drawn, c.took = time.Now(), time.Since(start) }()
	names := slices.DeleteFunc(slices.Clone(c.names), func(name string) bool {
		return !slices.ContainsFunc(c.series, func(s curve.Series) bool { return s.Name == name }) // not measured yet
	})
	plot, err := curve.Learning("", c.series, names...)
	if err != nil {
		return err
	}
	return plot.Save(c.path)
}

// seriesState is the form of a series in a checkpoint. Numbers are bits, as JSON has no NaN.
type seriesState struct {
	Name   string
	Steps  []int64
	Values []uint64
}

func (c *drawing) saved() (all []seriesState) {
	for _, s := range c.series {
		of := seriesState{Name: s.Name}
		for _, p := range s.Points {
			of.Steps, of.Values = append(of.Steps, int64(p.Step)), append(of.Values, math.Float64bits(p.Value))
		}
		all = append(all, of)
	}
	return all
}

func (c *drawing) load(data []byte) error {
	var all []seriesState
	if err := json.Unmarshal(data, &all); err != nil {
		return err
	}
	for _, s := range all {
		if len(s.Steps) != len(s.Values) {
			return &errkind.Fault{Op: "fit: curve", Reason: "the saved points are damaged", Class: errkind.DataLossError}
		}
		of := curve.Series{Name: s.Name}
		for i, step := range s.Steps {
			of.Points = append(of.Points, curve.Point{Step: float64(step), Value: math.Float64frombits(s.Values[i])})
		}
		c.series = append(c.series, of)
	}
	c.records = int64(len(all))
	return nil
}

// clear drops the points from a step on.
func (c *drawing) clear(from int64) error {
	for i := range c.series {
		c.series[i].Points = slices.DeleteFunc(c.series[i].Points, func(p curve.Point) bool { return p.Step >= float64(from) })
	}
	if info, err := os.Stat(c.path); err == nil && info.IsDir() {
		return &errkind.Fault{Op: "fit: curve", Subject: c.path, Reason: "it is a directory", Class: errkind.ValueError, Hint: "give the path of a file"}
	}
	return nil
}
