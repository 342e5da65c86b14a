package curve

import (
	"cmp"
	"math"
	"slices"
)

// ink is what something is drawn with; a color of it is that of the page's theme.
type ink int

const (
	strong ink = -1 - iota // of titles and names
	weak                   // of numbers
	faint                  // of the grid
	back                   // of the page
)

// An ink from 0 on is the color of the series of that number.

// anchor says which end of a text stands at its place.
type anchor int

const (
	start anchor = iota
	middle
	end
)

type (
	xy     struct{ x, y float64 }
	stroke struct {
		parts [][]xy // lines of at least two points
		ink   ink
		width float64
		alpha float64
	}
	dot struct {
		at     xy
		ink    ink
		radius float64
	}
	label struct {
		at     xy // of its baseline
		text   string
		ink    ink
		size   float64
		anchor anchor
		bold   bool
	}
)

// scene is what is drawn, in this order.
type scene struct {
	width, height float64
	strokes       []stroke
	dots          []dot
	labels        []label
	// What the page needs beside the picture.
	box         [4]float64 // left, top, right, bottom of the field
	x, y, right axis
	lines       []line
}

// The sizes of texts, and the room between things.
const (
	sizeTitle, sizeText, sizeTick = 16.0, 13.0, 12.0
	space                         = 8.0
)

// layout says where everything stands.
func (p Plot) layout() (*scene, error) {
	p, err := p.check()
	if err != nil {
		return nil, err
	}
	lines, err := p.lines()
	if err != nil {
		return nil, err
	}
	s := &scene{width: float64(p.Width), height: float64(p.Height), lines: lines}
	hasRight := s.axes(p)

	top := space
	if p.Title != "" {
		s.text(label{at: xy{2 * space, top + sizeTitle}, text: fit(p.Title, sizeTitle, true, s.width-4*space), ink: strong, size: sizeTitle, bold: true})
		top += sizeTitle + 1.5*space
	}
	top = s.legend(top)
	if p.Y != "" || p.Right != "" {
		top += sizeTick + space
	}
	top += space / 2
	bottom := s.height - 2*sizeTick - 2.5*space

	s.y.from, s.y.to = bottom, top
	s.right.from, s.right.to = bottom, top
	rows := int((bottom - top) / 48)
	yTicks := s.y.ticks(rows)
	left := 3*space + widest(yTicks)
	right := s.width - 2*space
	var rightTicks []tick
	if hasRight {
		rightTicks = s.right.ticks(rows)
		right -= widest(rightTicks) + space
	}
	ends := s.ends()
	right -= ends + space
	if right-left < 40 || bottom-top < 40 {
		return nil, &PlotError{Reason: "names, legend and numbers leave no room for the lines", Hint: "give a larger picture, or fewer or shorter names"}
	}
	s.x.from, s.x.to = left, right
	s.box = [4]float64{left, top, right, bottom}

	s.grid(p, yTicks, rightTicks)
	s.curves()
	s.endLabels(right + space + map[bool]float64{true: widest(rightTicks) + space}[hasRight])
	return s, nil
}

// axes finds the ranges.
func (s *scene) axes(p Plot) (hasRight bool) {
	type span struct{ low, high float64 }
	none := span{math.Inf(1), math.Inf(-1)}
	x, left, right := none, none, none
	whole := !p.LogX
	grow := func(r *span, v float64) { r.low, r.high = min(r.low, v), max(r.high, v) }
	for _, l := range s.lines {
		r := &left
		if l.right {
			r = &right
		}
		for _, points := range [][]Point{l.raw, l.points} {
			for _, at := range points {
				grow(&x, at.Step)
				whole = whole && at.Step == math.Trunc(at.Step)
				if !math.IsNaN(at.Value) {
					grow(r, at.Value)
				}
			}
		}
	}
	hasRight = right != none
	if left == none {
		left = span{0, 1}
		if p.LogY {
			left = span{0.1, 1}
		}
	}
	if whole && x.low == x.high && math.Abs(x.low) < 1e9 {
		x = span{x.low - 1, x.high + 1}
	}
	s.x = newAxis(x.low, x.high, p.LogX, false)
	s.x.whole = whole
	s.y = newAxis(left.low, left.high, p.LogY, true)
	if hasRight {
		s.right = newAxis(right.low, right.high, false, true)
	}
	return hasRight
}

// legend names the lines, in rows.
func (s *scene) legend(top float64) float64 {
	const sample = 18.0
	x, y := 2*space, top+sizeText
	for _, l := range s.lines {
		name := fit(nameOf(l), sizeText, false, s.width-4*space-sample)
		w := sample + measure(name, sizeText, false) + 2*space
		if x > 2*space && x+w > s.width-2*space {
			x, y = 2*space, y+sizeText+space
		}
		s.strokes = append(s.strokes, stroke{parts: [][]xy{{{x, y - sizeText/3}, {x + sample - 5, y - sizeText/3}}}, ink: ink(l.color), width: 3, alpha: 1})
		s.text(label{at: xy{x + sample, y}, text: name, ink: strong, size: sizeText})
		x += w
	}
	return y + space
}

func nameOf(l line) string {
	name := l.name
	if name == "" {
		name = "value"
	}
	switch {
	case l.raw != nil && l.right:
		name += " (smoothed, right)"
	case l.raw != nil:
		name += " (smoothed)"
	case l.right:
		name += " (right)"
	}
	return name
}

// grid draws the axes with their numbers.
func (s *scene) grid(p Plot, yTicks, rightTicks []tick) {
	left, top, right, bottom := s.box[0], s.box[1], s.box[2], s.box[3]
	var rules [][]xy
	for _, t := range yTicks {
		y := s.y.at(t.value)
		rules = append(rules, []xy{{left, y}, {right, y}})
		s.text(label{at: xy{left - space, y + sizeTick/3}, text: t.text, ink: weak, size: sizeTick, anchor: end})
	}
	for _, t := range rightTicks {
		s.text(label{at: xy{right + space, s.right.at(t.value) + sizeTick/3}, text: t.text, ink: weak, size: sizeTick})
	}
	s.strokes = append(s.strokes, stroke{parts: rules, ink: faint, width: 1, alpha: 1},
		stroke{parts: [][]xy{{{left, bottom}, {right, bottom}}}, ink: weak, width: 1, alpha: 1})
	var marks [][]xy
	room := math.Inf(-1)
	for _, t := range s.x.ticks(int((right - left) / 90)) {
		x, w := s.x.at(t.value), measure(t.text, sizeTick, false)
		marks = append(marks, []xy{{x, bottom}, {x, bottom + 4}})
		if x-w/2 < room {
			continue
		}
		room = x + w/2 + space
		s.text(label{at: xy{x, bottom + sizeTick + 0.9*space}, text: t.text, ink: weak, size: sizeTick, anchor: middle})
	}
	s.strokes = append(s.strokes, stroke{parts: marks, ink: weak, width: 1, alpha: 1})
	s.text(label{at: xy{(left + right) / 2, s.height - space}, text: fit(p.X, sizeTick, false, right-left), ink: weak, size: sizeTick, anchor: middle})
	if p.Y != "" {
		s.text(label{at: xy{2 * space, top - space}, text: fit(p.Y, sizeTick, false, (right-left)/2), ink: weak, size: sizeTick})
	}
	if p.Right != "" {
		s.text(label{at: xy{min(right+space+widest(rightTicks), s.width-2*space), top - space}, text: fit(p.Right, sizeTick, false, (right-left)/2), ink: weak, size: sizeTick, anchor: end})
	}
}

// curves draws the lines.
func (s *scene) curves() {
	column := func(step float64) int { return int(math.Floor(s.x.at(step))) }
	for i := range s.lines {
		l := &s.lines[i]
		l.raw, l.points = thin(l.raw, column), thin(l.points, column)
		y := s.y
		if l.right {
			y = s.right
		}
		if l.raw != nil {
			parts, _ := s.parts(l.raw, y)
			s.strokes = append(s.strokes, stroke{parts: parts, ink: ink(l.color), width: 1, alpha: 0.3})
		}
		width := 2.0
		if l.right {
			width = 1.25 // it is there to compare with
		}
		parts, alone := s.parts(l.points, y)
		s.strokes = append(s.strokes, stroke{parts: parts, ink: ink(l.color), width: width, alpha: 1})
		radius := 3.0
		if l.raw == nil && len(l.points) <= 40 {
			for _, part := range parts {
				alone = append(alone, part...)
			}
		}
		for _, at := range alone {
			s.dots = append(s.dots, dot{at, ink(l.color), radius})
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
		s.strokes = append(s.strokes, stroke{parts: crosses, ink: ink(l.color), width: 1.5, alpha: 1})
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

// lastOf is the last value of a line that has a place.
func lastOf(l line) (Point, bool) {
	for _, at := range slices.Backward(l.points) {
		if !math.IsNaN(at.Value) {
			return at, true
		}
	}
	return Point{}, false
}

// ends is the room that the last values take.
func (s *scene) ends() (w float64) {
	for _, l := range s.lines {
		if at, ok := lastOf(l); ok {
			w = max(w, measure(short(at.Value), sizeTick, true))
		}
	}
	return w
}

// endLabels writes the last value of each line beside it. Values that would stand on each other move
// apart, and the last of those for which there is no room are left out.
func (s *scene) endLabels(x float64) {
	var labels []label
	for _, l := range s.lines {
		at, ok := lastOf(l)
		if !ok {
			continue
		}
		y := s.y
		if l.right {
			y = s.right
		}
		labels = append(labels, label{at: xy{x, y.at(at.Value) + sizeTick/3}, text: short(at.Value), ink: ink(l.color), size: sizeTick, bold: true})
	}
	if most := int((s.box[3] - s.box[1]) / (sizeTick + 2)); len(labels) > most {
		labels = labels[:most]
	}
	slices.SortStableFunc(labels, func(a, b label) int { return cmp.Compare(a.at.y, b.at.y) })
	for i := 1; i < len(labels); i++ {
		labels[i].at.y = max(labels[i].at.y, labels[i-1].at.y+sizeTick+2)
	}
	floor := s.box[3] + sizeTick/3
	for i := len(labels) - 1; i >= 0; i-- {
		labels[i].at.y = min(labels[i].at.y, floor)
		floor = labels[i].at.y - sizeTick - 2
	}
	s.labels = append(s.labels, labels...)
}

func (s *scene) text(l label) {
	if l.text != "" {
		s.labels = append(s.labels, l)
	}
}

// widest is the room that numbers take.
func widest(ticks []tick) (w float64) {
	for _, t := range ticks {
		w = max(w, measure(t.text, sizeTick, false))
	}
	return w
}
