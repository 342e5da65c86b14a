package curve

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"html/template"
	"math"
	"strconv"
)

//go:embed page.html
var pageText string

var page = template.Must(template.New("page").Parse(pageText))

// HTML returns the plot as a page that stands alone: the picture, which shows the values at the step
// under the pointer, and a table of each series' lowest, highest and last value. The page needs no
// network and follows the browser's theme. The same plot gives the same bytes.
func (p Plot) HTML() ([]byte, error) {
	s, err := p.layout()
	if err != nil {
		return nil, err
	}
	var picture bytes.Buffer
	picture.WriteString(`<svg id="plot" `)
	s.svg(&picture, "")
	data := pageData{Width: s.width, Height: s.height, Box: s.box, X: s.x.data(), Left: s.y.data(), Right: s.right.data()}
	var rows []pageRow
	for i, l := range s.lines {
		one := pageLine{Name: nameOf(l), Color: i % len(light.series), Right: l.right, Steps: []float64{}, Values: []float64{}}
		for _, at := range l.points {
			if !math.IsNaN(at.Value) {
				one.Steps, one.Values = append(one.Steps, at.Step), append(one.Values, at.Value)
			}
		}
		data.Lines = append(data.Lines, one)
		rows = append(rows, l.row(ink(i)))
	}
	numbers, err := json.Marshal(data)
	if err != nil {
		return nil, err
	}
	title := p.Title
	if title == "" {
		title = "Learning curve"
	}
	var out bytes.Buffer
	err = page.Execute(&out, map[string]any{"Title": title, "Picture": template.HTML(picture.String()), "Data": template.JS(numbers), "Rows": rows, "X": s.title(p)})
	return out.Bytes(), err
}

// row is the line's lowest, highest and last value, before it was smoothed.
func (l line) row(i ink) pageRow {
	row := pageRow{Name: l.name, Class: class(i, false)}
	if l.raw != nil {
		l.points = l.raw
	}
	last, ok := lastOf(l)
	if !ok {
		return row
	}
	low, high := last, last
	for _, at := range l.points {
		if at.Value < low.Value {
			low = at
		}
		if at.Value > high.Value {
			high = at
		}
	}
	row.Low, row.LowAt = short(low.Value), plain(low.Step)
	row.High, row.HighAt = short(high.Value), plain(high.Step)
	row.Last, row.LastAt = short(last.Value), plain(last.Step)
	return row
}

func (s *scene) title(p Plot) string {
	if p.X == "" {
		return "step"
	}
	return p.X
}

func plain(v float64) string { return strconv.FormatFloat(v, 'g', 10, 64) }

// pageData is what the page's program reads.
type (
	pageData struct {
		Width  float64    `json:"width"`
		Height float64    `json:"height"`
		Box    [4]float64 `json:"box"`
		X      pageAxis   `json:"x"`
		Left   pageAxis   `json:"left"`
		Right  pageAxis   `json:"right"`
		Lines  []pageLine `json:"lines"`
	}
	pageAxis struct {
		Low  float64 `json:"low"`
		High float64 `json:"high"`
		From float64 `json:"from"`
		To   float64 `json:"to"`
		Log  bool    `json:"log"`
	}
	pageLine struct {
		Name   string    `json:"name"`
		Color  int       `json:"color"`
		Right  bool      `json:"right"`
		Steps  []float64 `json:"steps"`
		Values []float64 `json:"values"`
	}
	pageRow struct {
		Name, Class, Low, LowAt, High, HighAt, Last, LastAt string
	}
)

func (a axis) data() pageAxis { return pageAxis{a.low, a.high, a.from, a.to, a.log} }
