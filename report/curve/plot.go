package curve

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/tpustrategy/tpustrategy/errkind"
)

// Plot is a chart of values over steps. It is plain data; the zero values of its fields are the
// usual choices.
type Plot struct {
	Title string
	// X, Y and Right are the titles of the axes: below, on the left and on the right. They may be
	// empty; X is then "step".
	X, Y, Right string
	// LogX and LogY make the axes of steps and of the left values logarithmic when the page opens; the
	// reader can change it. A logarithmic axis has no place for what is 0 or below.
	LogX, LogY bool
	Series     []Series
}

// Series is values over steps that belong together: one line.
type Series struct {
	// Run names the run that the values are of. The series of a run are shown and hidden together,
	// and have one color if there are several runs. It may be empty.
	Run    string
	Name   string
	Points []Point // in any order; those of the same step stay in theirs
	// Smooth draws a line of means over neighbors: how much the next neighbor weighs of what the
	// one before it weighs, from 0 to below 1, such as 0.9. It begins and ends with the first and the
	// last value. The values themselves are drawn faintly. 0 smooths nothing.
	Smooth float64
	// Right puts the values on an axis of their own, on the right.
	Right bool
}

// Point is a value at a step. A value that is not finite has no place: the line has a gap there, and
// a mark on the axis below shows the step.
type Point struct {
	Step  float64 `json:"step"`
	Value float64 `json:"value"`
}

// Figures are the numbers of a series that its row in the page's table has. They are nil for a series
// without a finite value.
type Figures struct {
	Points  int    `json:"points"`
	First   *Point `json:"first,omitempty"`
	Last    *Point `json:"last,omitempty"`
	Lowest  *Point `json:"lowest,omitempty"`
	Highest *Point `json:"highest,omitempty"`
}

// Values from farthest on, and steps and differences nearer to 0 than nothing, have no place: the
// sizes of a picture have no quotients with them.
const farthest, nothing = 1e300, 1e-300

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

// hasPlace reports whether a value can be drawn.
func hasPlace(v float64) bool { return math.Abs(v) <= farthest } // NaN is not

// Figures returns the numbers that a page shows of the series: of the values as they are, not of the
// smoothed ones.
func (s Series) Figures() Figures {
	f := Figures{Points: len(s.Points)}
	for _, p := range sorted(s.Points) {
		if !hasPlace(p.Value) {
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

// sorted returns the points in the order of their steps.
func sorted(points []Point) []Point {
	points = slices.Clone(points)
	slices.SortStableFunc(points, func(a, b Point) int { return cmp.Compare(a.Step, b.Step) })
	return points
}

// check refuses what has no place.
func (p Plot) check() error {
	places := 0
	for _, s := range p.Series {
		if !(s.Smooth >= 0 && s.Smooth < 1) {
			return undrawable(s.Name, fmt.Sprintf("smoothing by %g", s.Smooth), "give a number from 0 to below 1, such as 0.9")
		}
		for k, at := range s.Points {
			if !hasPlace(at.Step) {
				return undrawable(s.Name, fmt.Sprintf("point %d is at step %g", k, at.Step), "give steps that are finite numbers")
			}
			if hasPlace(at.Value) && !(p.LogY && !s.Right && at.Value <= 0) && !(p.LogX && at.Step <= 0) {
				places++
			}
		}
	}
	if places == 0 {
		return undrawable("", "no value has a place in it", "give at least one point that is finite, and above 0 on a logarithmic axis")
	}
	return nil
}

// smooth takes means over as many neighbors on one side as on the other, of which each weighs by
// times what the one nearer weighs: the line lags behind neither way, and its ends are the values'.
func smooth(points []Point, by float64) []Point {
	out := slices.Clone(points)
	var at []int // the points that have a place
	for i, p := range points {
		if hasPlace(p.Value) {
			at = append(at, i)
		}
	}
	const least = 1e-3 // a neighbor that weighs less counts no more
	for i, k := range at {
		sum, weight, w := points[k].Value, 1.0, by
		for d := 1; d <= min(i, len(at)-1-i) && w > least; d++ {
			sum += w * (points[at[i-d]].Value + points[at[i+d]].Value)
			weight += 2 * w
			w *= by
		}
		out[k].Value = sum / weight
	}
	return out
}

// thin leaves, of so many stretches of steps, the first, the lowest, the highest and the last point,
// in their order, so that a line of any number of points looks as it would.
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
			case !hasPlace(v):
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
