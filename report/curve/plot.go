package curve

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/tpustrategy/tpustrategy/errkind"
)

// Plot is a picture of values over steps. It is plain data; the zero values of its fields are the
// usual choices.
type Plot struct {
	Title string
	// X, Y and Right are the titles of the axes: below, on the left and on the right. They may be
	// empty; X is then "step".
	X, Y, Right string
	// LogX and LogY make the axes of steps and of the left values logarithmic. A value of 0 or below is
	// then marked as one that is not finite, and a point at step 0 or below is left out.
	LogX, LogY bool
	// Width and Height are those of the picture in pixels of a page; 0: 960 and 540.
	Width, Height int
	Series        []Series
}

// Series is values over steps that belong together: one line.
type Series struct {
	Name   string
	Points []Point // in any order; those of the same step stay in theirs
	// Smooth makes the line that of means over neighbours: how much the next neighbour weighs of what
	// the one before it weighs, from 0 to below 1, such as 0.9. The values themselves are drawn faintly.
	// 0 smooths nothing.
	Smooth float64
	// Right puts the values on an axis of their own, on the right.
	Right bool
}

// Point is a value at a step. A value that is not finite has no place: the line has a gap there, and
// a cross on the axis below marks the step.
type Point struct{ Step, Value float64 }

// farthest is the size of values from which on they have no place.
const farthest = 1e300

// ErrPlot is matched by the error of what cannot be drawn.
var ErrPlot = errkind.New(errkind.ValueError, "curve: draw")

// undrawable says why a plot, or the series of it that is named, cannot be drawn.
func undrawable(series, reason, hint string) error {
	f := &errkind.Fault{Match: ErrPlot, Reason: reason, Hint: hint}
	if series != "" {
		f.Subject = fmt.Sprintf("series %q", series)
	}
	return f
}

// line is a series as it is drawn.
type line struct {
	name   string
	series int
	right  bool
	raw    []Point // faint; nil without smoothing
	points []Point // in the order of steps; values that have no place are NaN
	lost   []float64
}

// title is the line's name and how it is drawn.
func (l line) title() string {
	how := map[[2]bool]string{{true, true}: " (smoothed, right)", {true, false}: " (smoothed)", {false, true}: " (right)"}
	return cmp.Or(l.name, "value") + how[[2]bool{l.raw != nil, l.right}]
}

// last is the last value of a line that has a place.
func (l line) last() (Point, bool) {
	for _, at := range slices.Backward(l.points) {
		if !math.IsNaN(at.Value) {
			return at, true
		}
	}
	return Point{}, false
}

// check returns the plot with its defaults.
func (p Plot) check() (Plot, error) {
	p.X, p.Width, p.Height = cmp.Or(p.X, "step"), cmp.Or(p.Width, 960), cmp.Or(p.Height, 540)
	if p.Width < 200 || p.Height < 150 || p.Width > 8000 || p.Height > 8000 {
		return p, undrawable("", fmt.Sprintf("a picture of %d x %d pixels", p.Width, p.Height), "give 200 x 150 to 8000 x 8000, or 0 for the usual size")
	}
	return p, nil
}

// lines sorts, smooths and checks the series.
func (p Plot) lines() ([]line, error) {
	var out []line
	places := 0
	for i, s := range p.Series {
		if !(s.Smooth >= 0 && s.Smooth < 1) {
			return nil, undrawable(s.Name, fmt.Sprintf("smoothing by %g", s.Smooth), "give a number from 0 to below 1, such as 0.9")
		}
		l := line{name: s.Name, series: i, right: s.Right, points: slices.Clone(s.Points)}
		for k := range l.points {
			at := &l.points[k]
			at.Step, at.Value = noLess(at.Step), noLess(at.Value)
			if math.IsNaN(at.Step) || math.Abs(at.Step) > farthest {
				return nil, undrawable(s.Name, fmt.Sprintf("point %d is at step %g", k, at.Step), "give steps that are finite numbers")
			}
		}
		slices.SortStableFunc(l.points, func(a, b Point) int { return cmp.Compare(a.Step, b.Step) })
		if p.LogX {
			l.points = slices.DeleteFunc(l.points, func(at Point) bool { return at.Step <= 0 })
		}
		log := p.LogY && !s.Right
		for k, at := range l.points {
			if math.IsNaN(at.Value) || math.Abs(at.Value) > farthest || log && at.Value <= 0 {
				l.points[k].Value = math.NaN()
				l.lost = append(l.lost, at.Step)
			} else {
				places++
			}
		}
		if s.Smooth > 0 {
			l.raw = l.points
			l.points = smooth(l.points, s.Smooth)
		}
		out = append(out, l)
	}
	if places == 0 {
		return nil, undrawable("", "no value has a place in it", "give at least one point that is finite, and above 0 on a logarithmic axis")
	}
	return out, nil
}

// noLess is 0 for a number so near to it that the sizes of a picture have no quotients with it.
func noLess(v float64) float64 {
	if math.Abs(v) < nothing {
		return 0
	}
	return v
}

// smooth takes means over the neighbours on both sides, of which each weighs by times what the one
// nearer weighs, so that the line lags behind neither way.
func smooth(points []Point, by float64) []Point {
	out := slices.Clone(points)
	type mean struct{ sum, weight float64 }
	after := make([]mean, len(points)+1) // of a point and those after it
	for i := len(points) - 1; i >= 0; i-- {
		after[i] = after[i+1]
		if v := points[i].Value; !math.IsNaN(v) {
			after[i] = mean{by*after[i+1].sum + v, by*after[i+1].weight + 1}
		}
	}
	before := mean{}
	for i, p := range points {
		if math.IsNaN(p.Value) {
			continue
		}
		out[i].Value = (before.sum + after[i].sum) / (before.weight + after[i].weight)
		before = mean{by * (before.sum + p.Value), by * (before.weight + 1)}
	}
	return out
}

// thin leaves of the points that fall on one column of pixels the first, the lowest, the highest and
// the last, in their order, so that a line of any number of points looks as it would.
func thin(points []Point, column func(step float64) int) []Point {
	if len(points) < 16 {
		return points
	}
	var out []Point
	for from := 0; from < len(points); {
		at := column(points[from].Step)
		to, low, high := from, -1, -1
		gap := -1
		for ; to < len(points) && column(points[to].Step) == at; to++ {
			v := points[to].Value
			if math.IsNaN(v) {
				gap = to
				continue
			}
			if low < 0 || v < points[low].Value {
				low = to
			}
			if high < 0 || v > points[high].Value {
				high = to
			}
		}
		keep := []int{from, low, high, gap, to - 1}
		slices.Sort(keep)
		for _, k := range slices.Compact(keep) {
			if k >= 0 {
				out = append(out, points[k])
			}
		}
		from = to
	}
	return out
}
