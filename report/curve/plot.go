package curve

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/tpustrategy/tpustrategy/errkind"
)

// Plot is a chart of values over steps. It is plain data. The zero values of its fields are the
// defaults.
type Plot struct {
	Title string
	// X and Y are the titles of the axes below and on the left. The default of X is "step".
	X, Y string
	// LogX and LogY make the step axis and the left value axis logarithmic when the page is opened;
	// the reader can change it. A logarithmic axis omits values that are not positive.
	LogX, LogY bool
	Series     []Series
}

// Series is one line of a plot, with its name and its values over the steps.
type Series struct {
	// Run is the name of the run of the values. The series of a run are shown and hidden together,
	// and have one color if there are several runs. It may be empty.
	Run    string
	Name   string
	Points []Point // in any order; points of the same step keep their order
	// Smooth smooths the line by a weighted mean over neighbors. It is the ratio of the weights of
	// consecutive neighbors, from 0 to below 1, such as 0.9. The values themselves are drawn faintly.
	// 0 disables smoothing.
	Smooth float64
	// Axis is the title of the value axis, which is on the right. Series with the same title share
	// the axis. The default "" is the left axis.
	Axis string
}

// Point is a value at a step. A value that is not finite is not drawn: the line has a gap, and a
// mark on the axis shows the step.
type Point struct {
	Step  float64 `json:"step"`
	Value float64 `json:"value"`
}

// Figures contains figures of a series for the table in the page. They are nil if no value of the
// series is finite.
type Figures struct {
	Points  int    `json:"points"`
	First   *Point `json:"first,omitempty"`
	Last    *Point `json:"last,omitempty"`
	Lowest  *Point `json:"lowest,omitempty"`
	Highest *Point `json:"highest,omitempty"`
}

// Values beyond farthest, and steps and differences below nothing, cannot be drawn, because their
// quotients overflow.
const maxMagnitude, minMagnitude = 1e300, 1e-300

// ErrPlot matches the error of a plot that cannot be drawn.
var ErrPlot = errkind.New(errkind.ValueError, "curve: draw")

// plotError returns an error for a plot that cannot be drawn. If the cause is a single series,
// series is its name.
func plotError(series, reason, hint string) error {
	f := &errkind.Fault{Match: ErrPlot, Reason: reason, Hint: hint}
	if series != "" {
		f.Subject = fmt.Sprintf("series %q", series)
	}
	return f
}

func isDrawable(v float64) bool { return math.Abs(v) <= maxMagnitude } // NaN is not

// Figures returns figures of the series for the table in the page. They do not depend on the
// smoothing of the line.
func (s Series) Figures() Figures {
	f := Figures{Points: len(s.Points)}
	for _, p := range sorted(s.Points) {
		if !isDrawable(p.Value) {
			continue
		}
		f.Last = &p
		if f.First == nil {
			f.First, f.Lowest, f.Highest = &p, &p, &p
		}
		if p.Value < f.Lowest.Value {
			f.Lowest = &p
		}
		if p.Value > f.Highest.Value {
			f.Highest = &p
		}
	}
	return f
}

func sorted(points []Point) []Point {
	points = slices.Clone(points)
	slices.SortStableFunc(points, func(a, b Point) int { return cmp.Compare(a.Step, b.Step) })
	return points
}

// check returns an error if the plot cannot be drawn.
func (p Plot) check() error {
	places := 0
	for _, s := range p.Series {
		if !(s.Smooth >= 0 && s.Smooth < 1) {
			return plotError(s.Name, fmt.Sprintf("smoothing by %g", s.Smooth), "give a number from 0 to below 1, such as 0.9")
		}
		for k, at := range s.Points {
			if !isDrawable(at.Step) {
				return plotError(s.Name, fmt.Sprintf("point %d is at step %g", k, at.Step), "give steps that are finite numbers")
			}
			if isDrawable(at.Value) && !(p.LogY && s.Axis == "" && at.Value <= 0) && !(p.LogX && at.Step <= 0) {
				places++
			}
		}
	}
	if places == 0 {
		return plotError("", "no value has a place in it",
			"give at least one point that is finite, and above 0 on a logarithmic axis")
	}
	return nil
}

// smooth replaces each value by a weighted mean of the value and its neighbors on both sides. The
// value has the weight 1, and the weight decreases by the factor by with each step away from it. At
// an end of the line, only one side has neighbors.
func smooth(points []Point, by float64) []Point {
	out := slices.Clone(points)
	var at []int // the points that can be drawn
	for i, p := range points {
		if isDrawable(p.Value) {
			at = append(at, i)
		}
	}
	const least = 1e-3 // neighbors with less weight are ignored
	for i, k := range at {
		sum, weight, w := points[k].Value, 1.0, by
		for d := 1; d < len(at) && w > least; d++ {
			for _, neighbor := range []int{i - d, i + d} {
				if neighbor >= 0 && neighbor < len(at) {
					sum += w * points[at[neighbor]].Value
					weight += w
				}
			}
			w *= by
		}
		out[k].Value = sum / weight
	}
	return out
}

// thin reduces the number of points without a visible change of the line. It divides the steps into
// intervals and returns the first, lowest, highest and last point of each interval, in order.
func thin(points []Point, stretches int, place func(step float64) float64) []Point {
	if len(points) <= 4*stretches {
		return points
	}
	first, last := place(points[0].Step), place(points[len(points)-1].Step)
	column := func(i int) int { return int((place(points[i].Step) - first) / (last - first) * float64(stretches)) }
	var out []Point
	for from := 0; from < len(points); {
		to, low, high, gap := from, -1, -1, -1
		for at := column(from); to < len(points) && column(to) == at; to++ {
			switch v := points[to].Value; {
			case !isDrawable(v):
				gap = to
			default:
				if low < 0 || v < points[low].Value {
					low = to
				}
				if high < 0 || v > points[high].Value {
					high = to
				}
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
