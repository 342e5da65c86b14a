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

// Curve draws the learning curve of the run as an HTML page; see package report/curve. The path
// must end in .html. An existing page is replaced. Without metric names the page shows all metrics
// with "loss" in their names. The hook writes the page several times during the run and at its end.
//
// Checkpoints contain the points. A metric has at most 2000 points: above this limit, every second
// point is removed. `tpustrategy curve` draws several runs in one chart, from their CSV tables.
//
// During the run, a page that cannot be drawn or written is a warning. At the end, a page that
// cannot be written is an error that matches [ErrWrite].
func Curve(path string, metrics ...string) Hook {
	c := &curvePage{path: path, names: metrics}
	return Hook{Name: "curve " + path, Files: []string{path}, Requires: metrics, err: checkPagePath(path),
		reset: func() { *c = curvePage{path: path, names: metrics} },
		Begin: func(_ context.Context, s *State) error {
			if !s.IsChief() {
				return nil
			}
			return errors.Join(c.removeFrom(s.NextRecordStep()), checkWritable(filepath.Dir(path)))
		},
		Record: func(_ context.Context, s *State) error {
			c.addRecord(s)
			if s.IsChief() && c.shouldDraw() {
				if err := c.draw(); err != nil {
					s.Warn("fit: the curve is not drawn", "file", path, "error", err)
				}
			}
			return nil
		},
		End: func(_ context.Context, s *State, _ error) error {
			if !s.IsChief() || c.records == 0 {
				return nil
			}
			err := c.draw()
			if errors.Is(err, curve.ErrPlot) { // for example, all losses are NaN
				s.Warn("fit: the curve is not drawn", "file", path, "error", err)
				return nil
			}
			if err != nil {
				return writeError(path, 0, err)
			}
			return nil
		},
		Save: func() ([]byte, error) { return json.Marshal(c.encodeSeries()) },
		Load: c.load,
	}
}

func checkPagePath(path string) error {
	if err := curve.CheckPath(path); err != nil {
		return optionError("hook curve "+path, "give a path that ends in .html", "it is not the name of a page")
	}
	return nil
}

// maxPoints is the maximum number of points of a metric.
const maxPoints = 2000

type curvePage struct {
	path         string
	names        []string
	series       []curve.Series
	records      int64
	drawTime     time.Time
	drawDuration time.Duration // duration of the last drawing
}

// addRecord appends a point for each metric of the current record.
func (c *curvePage) addRecord(s *State) {
	c.records++
	for _, m := range s.Metrics() {
		i := slices.IndexFunc(c.series, func(of curve.Series) bool { return of.Name == m.Name })
		if i < 0 {
			i = len(c.series)
			c.series = append(c.series, curve.Series{Name: m.Name})
		}
		points := &c.series[i].Points
		*points = append(*points, curve.Point{Step: float64(s.Step()), Value: m.Value})
		if len(*points) > maxPoints {
			*points = halvePoints(*points)
		}
	}
}

// halvePoints removes every second point in place, but keeps the last point.
func halvePoints(points []curve.Point) []curve.Point {
	result := points[:0]
	for i, p := range points {
		if i%2 == 0 || i == len(points)-1 {
			result = append(result, p)
		}
	}
	return result
}

// shouldDraw reports whether this record redraws the page. Drawing uses at most a fiftieth of the
// time and happens at most every 10 seconds.
func (c *curvePage) shouldDraw() bool {
	return c.drawTime.IsZero() || time.Since(c.drawTime) > max(10*time.Second, 50*c.drawDuration)
}

func (c *curvePage) draw() error {
	start := time.Now()
	defer func() { c.drawTime, c.drawDuration = time.Now(), time.Since(start) }()
	names := slices.DeleteFunc(slices.Clone(c.names), func(name string) bool {
		return !slices.ContainsFunc(c.series, func(s curve.Series) bool { return s.Name == name }) // not measured yet
	})
	plot, err := curve.Learning(curve.Title(filepath.Dir(c.path)), c.series, names...)
	if err != nil {
		return err
	}
	return plot.Save(c.path)
}

// seriesState is the encoding of a curve.Series in a checkpoint. Values are float64 bits, because
// JSON has no NaN.
type seriesState struct {
	Name   string
	Steps  []int64
	Values []uint64
}

func (c *curvePage) encodeSeries() (all []seriesState) {
	for _, s := range c.series {
		state := seriesState{Name: s.Name}
		for _, p := range s.Points {
			state.Steps, state.Values = append(state.Steps, int64(p.Step)), append(state.Values, math.Float64bits(p.Value))
		}
		all = append(all, state)
	}
	return all
}

func (c *curvePage) load(data []byte) error {
	var all []seriesState
	if err := json.Unmarshal(data, &all); err != nil {
		return err
	}
	for _, s := range all {
		if len(s.Steps) != len(s.Values) {
			return &errkind.Fault{Op: "fit: curve", Reason: "the saved points are damaged", Class: errkind.DataLossError}
		}
		series := curve.Series{Name: s.Name}
		for i, step := range s.Steps {
			series.Points = append(series.Points, curve.Point{Step: float64(step), Value: math.Float64frombits(s.Values[i])})
		}
		c.series = append(c.series, series)
	}
	c.records = int64(len(all))
	return nil
}

// removeFrom removes the points from step firstStep on. It returns an error if the path is a
// directory.
func (c *curvePage) removeFrom(firstStep int64) error {
	for i := range c.series {
		c.series[i].Points = slices.DeleteFunc(c.series[i].Points,
			func(p curve.Point) bool { return p.Step >= float64(firstStep) })
	}
	if info, err := os.Stat(c.path); err == nil && info.IsDir() {
		return &errkind.Fault{Op: "fit: curve", Subject: c.path, Reason: "it is a directory", Class: errkind.ValueError,
			Hint: "give the path of a file"}
	}
	return nil
}
