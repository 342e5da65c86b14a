package curve

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"html/template"
	"io"
	"math"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/internal/files"
)

//go:embed page.html
var pageText string

var page = template.Must(template.New("page").Parse(pageText))

// The page's program reads these.
type (
	pageAxis struct {
		Low  float64 `json:"low"`
		High float64 `json:"high"`
		From float64 `json:"from"`
		To   float64 `json:"to"`
		Log  bool    `json:"log"`
	}
	pageLine struct {
		Name   string    `json:"name"`
		Ink    string    `json:"ink"`
		Right  bool      `json:"right"`
		Steps  []float64 `json:"steps"`
		Values []float64 `json:"values"`
	}
)

// pageRow is a line of the page's table.
type pageRow struct{ Name, Ink, Low, LowAt, High, HighAt, Last, LastAt string }

// HTML returns the plot as a page that stands alone: the picture, which shows the values at the step
// under the pointer, and a table of each series' lowest, highest and last value. The page needs no
// network and follows the browser's theme. The same plot gives the same bytes.
func (p Plot) HTML() ([]byte, error) {
	s, err := p.draw()
	if err != nil {
		return nil, err
	}
	lines := []pageLine{}
	var rows []pageRow
	for _, l := range s.lines {
		one := pageLine{Name: l.title(), Ink: inkOf(l.series), Right: l.right, Steps: []float64{}, Values: []float64{}}
		for _, at := range l.points {
			if !math.IsNaN(at.Value) {
				one.Steps, one.Values = append(one.Steps, at.Step), append(one.Values, at.Value)
			}
		}
		lines, rows = append(lines, one), append(rows, l.row())
	}
	data, err := json.Marshal(map[string]any{"width": s.plot.Width, "box": s.box, "x": s.x.data(), "left": s.y.data(), "right": s.right.data(), "lines": lines})
	if err != nil {
		return nil, err
	}
	title := p.Title
	if title == "" {
		title = "Learning curve"
	}
	var out bytes.Buffer
	err = page.Execute(&out, map[string]any{"Title": title, "Picture": template.HTML(`<svg id="plot" ` + s.out.String()), "Data": template.JS(data), "Rows": rows, "X": s.plot.X})
	return out.Bytes(), err
}

func (a axis) data() pageAxis { return pageAxis{a.low, a.high, a.from, a.to, a.log} }

// row is the line's lowest, highest and last value, before it was smoothed.
func (l line) row() pageRow {
	row := pageRow{Name: l.name, Ink: inkOf(l.series)}
	if l.raw != nil {
		l.points = l.raw
	}
	last, ok := l.last()
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
	of := func(at Point) (value, step string) { return short(at.Value), strconv.FormatFloat(at.Step, 'g', 10, 64) }
	row.Low, row.LowAt = of(low)
	row.High, row.HighAt = of(high)
	row.Last, row.LastAt = of(last)
	return row
}

// Save writes the plot to a file, in the form that the path's extension names: .svg or .html. The
// file is written whole or not at all: what stood there stays as it is until the new picture is on
// the disk. The error of a full disk is a ResourceExhaustedError.
func (p Plot) Save(path string) error {
	if err := CheckPath(path); err != nil {
		return err
	}
	draw := p.HTML
	if strings.EqualFold(filepath.Ext(path), ".svg") {
		draw = p.SVG
	}
	data, err := draw()
	if err != nil {
		return err
	}
	err = files.Replace(path, func(w io.Writer) error {
		_, err := w.Write(data)
		return err
	})
	if err != nil {
		return &errkind.Fault{Op: "curve: save", Err: err}
	}
	return nil
}

// CheckPath returns the error that [Plot.Save] would return for a path whose extension it does not
// know, before there is anything to draw.
func CheckPath(path string) error {
	switch strings.ToLower(filepath.Ext(path)) {
	case ".svg", ".html", ".htm":
		return nil
	}
	return &errkind.Fault{Op: "curve: save", Subject: path, Class: errkind.ValueError,
		Reason: "it is not clear which form the picture shall have", Hint: "give a path that ends in .svg or .html"}
}
