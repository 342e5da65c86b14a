package curve

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// The sizes of texts, and the room between things.
const (
	sizeTitle, sizeText, sizeTick = 16.0, 13.0, 12.0
	space                         = 8.0
)

// css has the inks of both themes: of titles, of numbers, of the grid, of the page, and of the series
// in turn. Their colors can be told apart by those who do not see all of them.
const css = `.t{color:#222222}.w{color:#666666}.g{color:#e6e6e6}.b{color:#ffffff}
.c0{color:#4477aa}.c1{color:#ee6677}.c2{color:#228833}.c3{color:#aa3377}.c4{color:#b8860b}.c5{color:#3aa8c8}.c6{color:#777777}.c7{color:#994f00}
@media (prefers-color-scheme: dark) {
.t{color:#eeeeee}.w{color:#aaaaaa}.g{color:#333338}.b{color:#17181c}
.c0{color:#77aadd}.c1{color:#ff8899}.c2{color:#66bb77}.c3{color:#dd77bb}.c4{color:#ddbb55}.c5{color:#66ccee}.c6{color:#bbbbbb}.c7{color:#cc9966}
}
`

// inkOf is the ink of a series.
func inkOf(series int) string { return "c" + strconv.Itoa(series%8) }

type xy struct{ x, y float64 }

// scene is a plot as it is drawn.
type scene struct {
	plot        Plot
	out         bytes.Buffer // the picture, without its first tag's beginning
	lines       []line
	box         [4]float64 // left, top, right, bottom of the field
	x, y, right axis
}

// draw draws the plot.
func (p Plot) draw() (*scene, error) {
	p, err := p.check()
	if err != nil {
		return nil, err
	}
	s := &scene{plot: p}
	if s.lines, err = p.lines(); err != nil {
		return nil, err
	}
	hasRight := s.axes()
	width, height := float64(p.Width), float64(p.Height)
	fmt.Fprintf(&s.out, `viewBox="0 0 %d %d" role="img" font-family="system-ui, 'Helvetica Neue', Arial, sans-serif">`+"\n", p.Width, p.Height)
	if p.Title != "" {
		fmt.Fprintf(&s.out, "<title>%s</title>\n", escape(p.Title))
	}
	fmt.Fprintf(&s.out, "<style>\n%s</style>\n"+`<rect width="%d" height="%d" class="b" fill="currentColor"/>`+"\n", css, p.Width, p.Height)

	top := space
	if p.Title != "" {
		s.text(2*space, top+sizeTitle, fit(p.Title, sizeTitle, width-4*space), `class="t" font-weight="600"`, sizeTitle)
		top += sizeTitle + 1.5*space
	}
	top = s.legend(top, width)
	if p.Y != "" || p.Right != "" {
		top += sizeTick + space
	}
	top += space / 2
	bottom := height - 2*sizeTick - 2.5*space
	s.y.from, s.y.to = bottom, top
	s.right.from, s.right.to = bottom, top
	rows := int((bottom - top) / 48)
	yTicks, left, right := s.y.ticks(rows), 3*space, width-3*space
	left += widest(yTicks)
	var rightTicks []tick
	if hasRight {
		rightTicks = s.right.ticks(rows)
		right -= widest(rightTicks)
	}
	if right-left < 40 || bottom-top < 40 {
		return nil, undrawable("", "names, legend and numbers leave no room for the lines", "give a larger picture, or fewer or shorter names")
	}
	s.x.from, s.x.to = left, right
	s.box = [4]float64{left, top, right, bottom}
	s.grid(yTicks, rightTicks)
	s.curves()
	s.out.WriteString("</svg>\n")
	return s, nil
}

// SVG returns the plot as an SVG picture, which follows the theme of the browser that shows it. The
// same plot gives the same bytes.
func (p Plot) SVG() ([]byte, error) {
	s, err := p.draw()
	if err != nil {
		return nil, err
	}
	head := fmt.Sprintf(`<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" `, s.plot.Width, s.plot.Height)
	return append([]byte(head), s.out.Bytes()...), nil
}

// axes finds the ranges.
func (s *scene) axes() (hasRight bool) {
	type span struct{ low, high float64 }
	none := span{math.Inf(1), math.Inf(-1)}
	x, left, right := none, none, none
	whole := !s.plot.LogX
	grow := func(r *span, v float64) { r.low, r.high = min(r.low, v), max(r.high, v) }
	for _, l := range s.lines {
		r := &left
		if l.right {
			r = &right
		}
		for _, at := range slices.Concat(l.raw, l.points) {
			grow(&x, at.Step)
			whole = whole && at.Step == math.Trunc(at.Step)
			if !math.IsNaN(at.Value) {
				grow(r, at.Value)
			}
		}
	}
	hasRight = right != none
	if left == none {
		left = span{0.1, 1}
	}
	if whole && x.low == x.high && math.Abs(x.low) < 1e9 {
		x = span{x.low - 1, x.high + 1}
	}
	s.x = newAxis(x.low, x.high, s.plot.LogX, false)
	s.x.whole = whole
	s.y = newAxis(left.low, left.high, s.plot.LogY, true)
	if hasRight {
		s.right = newAxis(right.low, right.high, false, true)
	}
	return hasRight
}

// legend names the lines, with their last values, in rows.
func (s *scene) legend(top, width float64) float64 {
	const sample = 18.0
	x, y := 2*space, top+sizeText
	for _, l := range s.lines {
		text := l.title()
		if at, ok := l.last(); ok {
			text += " " + short(at.Value)
		}
		text = fit(text, sizeText, width-4*space-sample)
		w := sample + measure(text, sizeText) + 2*space
		if x > 2*space && x+w > width-2*space {
			x, y = 2*space, y+sizeText+space
		}
		s.path([][]xy{{{x, y - sizeText/3}, {x + sample - 5, y - sizeText/3}}}, inkOf(l.series), 3, 1)
		s.text(x+sample, y, text, `class="t"`, sizeText)
		x += w
	}
	return y + space
}

// grid draws the axes with their numbers.
func (s *scene) grid(yTicks, rightTicks []tick) {
	const end = `class="w" text-anchor="end"`
	p, left, top, right, bottom := &s.plot, s.box[0], s.box[1], s.box[2], s.box[3]
	var rules, marks [][]xy
	for _, t := range yTicks {
		y := s.y.at(t.value)
		rules = append(rules, []xy{{left, y}, {right, y}})
		s.text(left-space, y+sizeTick/3, t.text, end, sizeTick)
	}
	for _, t := range rightTicks {
		s.text(right+space, s.right.at(t.value)+sizeTick/3, t.text, `class="w"`, sizeTick)
	}
	room := math.Inf(-1)
	for _, t := range s.x.ticks(int((right - left) / 90)) {
		x, w := s.x.at(t.value), measure(t.text, sizeTick)
		marks = append(marks, []xy{{x, bottom}, {x, bottom + 4}})
		if x-w/2 >= room {
			room = x + w/2 + space
			s.text(x, bottom+sizeTick+0.9*space, t.text, `class="w" text-anchor="middle"`, sizeTick)
		}
	}
	s.path(rules, "g", 1, 1)
	s.path(append(marks, []xy{{left, bottom}, {right, bottom}}), "w", 1, 1)
	s.text((left+right)/2, float64(p.Height)-space, fit(p.X, sizeTick, right-left), `class="w" text-anchor="middle"`, sizeTick)
	s.text(2*space, top-space, fit(p.Y, sizeTick, (right-left)/2), `class="w"`, sizeTick)
	s.text(float64(p.Width)-2*space, top-space, fit(p.Right, sizeTick, (right-left)/2), end, sizeTick)
}

// curves draws the lines.
func (s *scene) curves() {
	column := func(step float64) int { return int(math.Floor(s.x.at(step))) }
	for i := range s.lines {
		l := &s.lines[i]
		l.raw, l.points = thin(l.raw, column), thin(l.points, column)
		y, width := s.y, 2.0
		if l.right {
			y, width = s.right, 1.25 // it is there to compare with
		}
		ink := inkOf(l.series)
		faint, _ := s.parts(l.raw, y)
		s.path(faint, ink, 1, 0.3)
		parts, alone := s.parts(l.points, y)
		s.path(parts, ink, width, 1)
		if l.raw == nil && len(l.points) <= 40 {
			alone = slices.Concat(append(parts, alone)...)
		}
		for _, at := range alone {
			fmt.Fprintf(&s.out, `<circle cx="%s" cy="%s" r="3" class="%s" fill="currentColor"/>`+"\n", coordinate(at.x), coordinate(at.y), ink)
		}
		var crosses [][]xy
		last := math.Inf(-1)
		for _, step := range l.lost {
			if x := s.x.at(step); x > last+1 {
				b := s.box[3]
				crosses = append(crosses, []xy{{x - 4, b - 4}, {x + 4, b + 4}}, []xy{{x - 4, b + 4}, {x + 4, b - 4}})
				last = x
			}
		}
		s.path(crosses, ink, 1.5, 1)
	}
}

// parts are the places of points, in lines without gaps, and the points that stand alone.
func (s *scene) parts(points []Point, y axis) (parts [][]xy, alone []xy) {
	var part []xy
	flush := func() {
		if len(part) == 1 {
			alone = append(alone, part[0])
		} else if len(part) > 1 {
			parts = append(parts, part)
		}
		part = nil
	}
	for _, at := range points {
		if math.IsNaN(at.Value) {
			flush()
			continue
		}
		part = append(part, xy{s.x.at(at.Step), y.at(at.Value)})
	}
	flush()
	return parts, alone
}

// path draws lines of at least two points.
func (s *scene) path(parts [][]xy, ink string, width, opacity float64) {
	if len(parts) == 0 {
		return
	}
	s.out.WriteString(`<path d="`)
	for _, part := range parts {
		for i, at := range part {
			fmt.Fprintf(&s.out, "%c%s %s", "ML"[min(i, 1)], coordinate(at.x), coordinate(at.y))
		}
	}
	fmt.Fprintf(&s.out, `" class="%s" fill="none" stroke="currentColor" stroke-width="%g" stroke-linejoin="round" opacity="%g"/>`+"\n", ink, width, opacity)
}

// text writes a text, if there is one, from its baseline on.
func (s *scene) text(x, y float64, text, how string, size float64) {
	if text != "" {
		fmt.Fprintf(&s.out, `<text x="%s" y="%s" font-size="%g" %s fill="currentColor">%s</text>`+"\n", coordinate(x), coordinate(y), size, how, escape(text))
	}
}

// measure estimates the width of a text in pixels: the font is the browser's.
func measure(text string, size float64) (w float64) {
	for _, r := range text {
		switch {
		case strings.ContainsRune("ijl.,:;'|! ", r):
			w += 0.33
		case r >= 0x1100 || strings.ContainsRune("mwMW%", r):
			w += 1
		default:
			w += 0.6
		}
	}
	return w * size
}

// fit cuts a text that is wider than there is room for.
func fit(text string, size, room float64) string {
	if measure(text, size) <= room {
		return text
	}
	cut := 0
	for i := range text {
		if measure(text[:i]+"…", size) > room {
			break
		}
		cut = i
	}
	return text[:cut] + "…"
}

// widest is the room that numbers take.
func widest(ticks []tick) (w float64) {
	for _, t := range ticks {
		w = max(w, measure(t.text, sizeTick))
	}
	return w
}

// coordinate writes a place to a hundredth of a pixel.
func coordinate(v float64) string {
	return strconv.FormatFloat(math.Round(v*100)/100+0, 'f', -1, 64)
}

// escape writes a text into XML; characters that XML cannot have become U+FFFD.
func escape(text string) string {
	var out bytes.Buffer
	_ = xml.EscapeText(&out, []byte(strings.ToValidUTF8(text, "\ufffd"))) // a Buffer takes all
	return out.String()
}
