package curve

import (
	"bytes"
	"cmp"
	_ "embed"
	"html/template"
	"io"
	"math"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/internal/files"
	"github.com/tpustrategy/tpustrategy/internal/uplot"
)

var (
	//go:embed page.html
	pageText string
	//go:embed page.js
	program template.JS
)

var page = template.Must(template.New("page").Funcs(template.FuncMap{"short": formatShort,
	"exact": formatExact}).Parse(pageText))

// mostPoints bounds the points of all lines of a page. Points that are not distinguishable at a few
// times the width of a window are omitted.
const mostPoints = 32000

// These types are the JSON input of the script in the page.
type (
	chart struct {
		Title string `json:"-"`
		X     string `json:"x"`
		Y     string `json:"y"`
		LogX  bool   `json:"logX"`
		LogY  bool   `json:"logY"`
		// Smooth reports whether a line is smoothed.
		Smooth bool   `json:"-"`
		Runs   []run  `json:"-"`
		Lines  []line `json:"lines"`
	}
	line struct {
		Ink    int     `json:"ink"`  // index of the page's colors
		Dash   int     `json:"dash"` // distinguishes the lines of one color
		Axis   string  `json:"axis"` // "" is the left axis
		Raw    table   `json:"raw"`
		Smooth *table  `json:"smooth,omitempty"`
		Lost   numbers `json:"lost"` // the steps of values that are not finite
	}
	// table contains steps and the values at these steps.
	table [2]numbers
	// numbers are encoded as JSON numbers. A number that cannot be drawn is encoded as null.
	numbers []float64
)

// These types are the data of the tables in the page.
type (
	run struct {
		Name string
		Rows []row
	}
	row struct {
		Line, Ink int
		Name      string
		Lost      int
		Figures
	}
)

// MarshalJSON encodes fractions with seven digits, which is the precision of a float32, and
// integers with all digits.
func (n numbers) MarshalJSON() ([]byte, error) {
	out := []byte{'['}
	for i, v := range n {
		if i > 0 {
			out = append(out, ',')
		}
		switch {
		case !isDrawable(v):
			out = append(out, "null"...)
		case math.Abs(v) < minMagnitude:
			out = append(out, '0')
		case v == math.Trunc(v) && math.Abs(v) < 1<<53:
			out = strconv.AppendFloat(out, v, 'f', -1, 64)
		default:
			out = strconv.AppendFloat(out, v, 'g', 7, 64)
		}
	}
	return append(out, ']'), nil
}

// Page returns a self-contained page with a chart of each plot and a table of its series: the
// first, last, lowest and highest value. The page needs no network and follows the browser's theme.
// In a browser without scripts it shows the tables. The same plots return the same bytes. For a
// plot that cannot be drawn, the error matches [ErrPlot].
func Page(title string, plots ...Plot) ([]byte, error) {
	var charts []chart
	for _, p := range plots {
		c, err := p.chart()
		if err != nil {
			return nil, err
		}
		charts = append(charts, c)
	}
	var out bytes.Buffer
	err := page.Execute(&out, map[string]any{"Title": title, "Charts": charts, "Style": uplot.Style,
		"Library": uplot.Program(), "Program": program})
	return out.Bytes(), err
}

// HTML returns the plot as a self-contained page, see [Page].
func (p Plot) HTML() ([]byte, error) { return Page(cmp.Or(p.Title, "Learning curve"), p) }

func (p Plot) chart() (chart, error) {
	if err := p.check(); err != nil {
		return chart{}, err
	}
	c := chart{Title: p.Title, X: cmp.Or(p.X, "step"), Y: p.Y, LogX: p.LogX, LogY: p.LogY}
	place := func(step float64) float64 { return step }
	if p.LogX {
		place = func(step float64) float64 { return math.Log(max(step, minMagnitude)) }
	}
	var names []string
	for _, s := range p.Series {
		if !slices.ContainsFunc(c.Runs, func(r run) bool { return r.Name == s.Run }) {
			c.Runs = append(c.Runs, run{Name: s.Run})
		}
		if !slices.Contains(names, s.Name) {
			names = append(names, s.Name)
		}
		c.Smooth = c.Smooth || s.Smooth > 0
	}
	stretches := max(mostPoints/8/len(p.Series), 25)
	for i, s := range p.Series {
		all := sorted(s.Points)
		l := line{Ink: i, Axis: s.Axis, Raw: tableOf(thin(all, stretches, place)), Lost: numbers{}}
		r := slices.IndexFunc(c.Runs, func(r run) bool { return r.Name == s.Run })
		if len(c.Runs) > 1 {
			l.Ink, l.Dash = r, slices.Index(names, s.Name)
		}
		if s.Smooth > 0 {
			t := tableOf(thin(smooth(all, s.Smooth), stretches, place))
			l.Smooth = &t
		}
		lost := slices.DeleteFunc(all, func(at Point) bool { return isDrawable(at.Value) })
		for _, at := range thin(lost, stretches, place) {
			l.Lost = append(l.Lost, at.Step)
		}
		c.Runs[r].Rows = append(c.Runs[r].Rows, row{Line: i, Ink: l.Ink % numColors, Name: cmp.Or(s.Name, "value"),
			Lost: len(lost), Figures: s.Figures()})
		l.Ink %= numColors
		c.Lines = append(c.Lines, l)
	}
	return c, nil
}

// numColors is the number of the page's colors.
const numColors = 8

func tableOf(points []Point) table {
	t := table{numbers{}, numbers{}}
	for _, p := range points {
		t[0], t[1] = append(t[0], p.Step), append(t[1], p.Value)
	}
	return t
}

// formatShort formats a value with four significant digits.
func formatShort(v float64) string {
	if v == 0 {
		return "0"
	}
	if size := math.Abs(v); size >= 0.01 && size < 1e6 {
		return strconv.FormatFloat(v, 'f', max(0, 3-int(math.Floor(math.Log10(size)))), 64)
	}
	return strconv.FormatFloat(v, 'g', 4, 64)
}

func formatExact(v float64) string { return strconv.FormatFloat(v, 'g', -1, 64) }

// Save writes the plot to a file as a page. The file is replaced atomically: the previous file
// stays unchanged until the new page is on disk. A full disk is a ResourceExhaustedError.
func (p Plot) Save(path string) error {
	if err := CheckPath(path); err != nil {
		return err
	}
	data, err := p.HTML()
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

// CheckPath returns the error that [Plot.Save] would return for a path with an unsupported
// extension. It does not need a plot.
func CheckPath(path string) error {
	switch strings.ToLower(filepath.Ext(path)) {
	case ".html", ".htm":
		return nil
	}
	return &errkind.Fault{Op: "curve: save", Subject: path, Class: errkind.ValueError,
		Reason: "it is not the name of a page", Hint: "give a path that ends in .html"}
}
