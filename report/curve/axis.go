package curve

import (
	"math"
	"strconv"
	"strings"
)

// axis places numbers on a line of pixels.
type axis struct {
	low, high float64 // the numbers at the ends
	from, to  float64 // the pixels at the ends
	log       bool
	whole     bool // only whole numbers are written on it
}

func (a axis) at(v float64) float64 {
	low, high := a.low, a.high
	if a.log {
		v, low, high = math.Log10(v), math.Log10(low), math.Log10(high)
	}
	return a.from + (v-low)/(high-low)*(a.to-a.from)
}

// nothing is a difference that float64 has no parts of worth drawing.
const nothing = 1e-300

// newAxis is an axis that has room for the numbers from low to high, and some more on the sides that
// are padded.
func newAxis(low, high float64, log, pad bool) axis {
	if size := max(math.Abs(low), math.Abs(high)); high-low <= 1e-9*size || high-low < nothing && !log {
		by := size / 20
		if by < nothing {
			by = 1
		}
		if log {
			return axis{low: low / 1.5, high: high * 1.5, log: true}
		}
		return axis{low: low - by, high: high + by}
	}
	if !pad {
		return axis{low: low, high: high, log: log}
	}
	if log {
		by := math.Pow(10, 0.04*(math.Log10(high)-math.Log10(low)))
		return axis{low: max(low/by, math.SmallestNonzeroFloat64), high: min(high*by, math.MaxFloat64), log: true}
	}
	by := (high - low) * 0.05
	return axis{low: low - by, high: high + by}
}

// tick is a number that is written on an axis.
type tick struct {
	value float64
	text  string
}

// ticks returns about most numbers of the axis that are easily read.
func (a axis) ticks(most int) []tick {
	most = max(most, 2)
	if a.log && a.high/a.low >= 8 {
		return a.decades(most)
	}
	step := niceStep((a.high - a.low) / float64(most))
	if !(step > 0) || math.IsInf(step, 0) { // between two numbers next to 0
		return []tick{{a.low, number(a.low, a.low)}, {a.high, number(a.high, a.high)}}
	}
	if a.whole {
		step = max(step, 1)
	}
	var out []tick
	first := math.Ceil(a.low / step)
	for i := 0.0; i <= float64(4*most); i++ {
		v := (first + i) * step
		if v > a.high+step*1e-9 {
			break
		}
		if v == 0 {
			v = 0 // not -0
		}
		out = append(out, tick{v, number(v, step)})
	}
	return out
}

// niceStep is the least of 1, 2 and 5 times a power of ten that is not below v.
func niceStep(v float64) float64 {
	power := math.Pow(10, math.Floor(math.Log10(v)))
	for _, m := range []float64{1, 2, 5} {
		if m*power >= v*(1-1e-9) {
			return m * power
		}
	}
	return 10 * power
}

// decades are the powers of ten, with 2 and 5 times them where there is room, or some of them.
func (a axis) decades(most int) (out []tick) {
	low, high := math.Floor(math.Log10(a.low)), math.Ceil(math.Log10(a.high))
	every := max(1, math.Ceil((high-low)/float64(most)))
	factors := []float64{1}
	if every == 1 && (high-low)*3 <= float64(most) {
		factors = []float64{1, 2, 5}
	}
	for e := math.Ceil(low/every) * every; e <= high; e += every {
		for _, f := range factors {
			if v := f * math.Pow(10, e); v >= a.low*(1-1e-9) && v <= a.high*(1+1e-9) {
				out = append(out, tick{v, number(v, v)})
			}
		}
	}
	return out
}

// number writes v to the precision of step.
func number(v, step float64) string {
	size, unit := math.Abs(v), ""
	switch {
	case v == 0:
		return "0"
	case size >= 1e15 || size < 1e-4 || step < 1e-6:
		digits := max(0, int(math.Floor(math.Log10(size)+1e-9)-math.Floor(math.Log10(step)+1e-9)))
		text := strconv.FormatFloat(v, 'e', min(digits, 15), 64)
		mantissa, exponent, _ := strings.Cut(text, "e")
		n, _ := strconv.Atoi(exponent)
		return mantissa + "e" + strconv.Itoa(n)
	case size >= 1e9 && step >= 1e6:
		v, step, unit = v/1e9, step/1e9, "G"
	case size >= 1e6 && step >= 1e3:
		v, step, unit = v/1e6, step/1e6, "M"
	case size >= 1e4 && step >= 10:
		v, step, unit = v/1e3, step/1e3, "k"
	}
	text := strconv.FormatFloat(v, 'f', min(15, max(0, int(-math.Floor(math.Log10(step)+1e-9)))), 64)
	if unit != "" && strings.Contains(text, ".") {
		text = strings.TrimRight(strings.TrimRight(text, "0"), ".")
	}
	return text + unit
}

// short writes a value in four digits.
func short(v float64) string {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return strconv.FormatFloat(v, 'g', -1, 64)
	}
	if v == 0 {
		return "0"
	}
	if size := math.Abs(v); size >= 0.01 && size < 1e6 {
		return strconv.FormatFloat(v, 'f', max(0, 3-int(math.Floor(math.Log10(size)))), 64)
	}
	return strconv.FormatFloat(v, 'g', 4, 64)
}
