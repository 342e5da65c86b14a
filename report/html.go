package report

import (
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"strconv"
	"strings"

	"github.com/tpustrategy/tpustrategy/errkind"
)

//go:embed page.html
var pageText string

var page = template.Must(template.New("page").Funcs(template.FuncMap{
	"bytes": Bytes, "size": sizeData, "si": SI, "seconds": Seconds,
	"accessed": func(x float64) string { return Bytes(int64(x)) },
	"percent":  func(x float64) string { return fmt.Sprintf("%.2f%%", 100*x) },
	"dims":     dimsText, "layout": Tensor.layout, "dtypes": (*Report).dtypesOf, "predictedParts": (*Prediction).parts,
}).Parse(pageText))

// WriteHTML writes the report as one page with pictures: the memory of a core, the parts of the
// largest tensors on their devices, and the collectives. The page needs no other file, no network
// and no scripts.
func (r *Report) WriteHTML(w io.Writer) error {
	largest := r.Largest("")
	data := struct {
		*Report
		Bar  []barPiece
		Maps []shardingMap
		Rows []Tensor
		More int
		// Verdict says whether the program fits.
		Verdict string
		// SeveralDTypes says that the collectives have a column of dtypes.
		SeveralDTypes bool
	}{Report: r, Verdict: r.Memory.verdict(), SeveralDTypes: r.severalDTypes(), Bar: r.Memory.bar(), Rows: largest[:min(len(largest), pageTensors)], More: max(len(largest)-pageTensors, 0)}
	for _, t := range largest {
		if len(data.Maps) < pageMaps && len(t.Shape) > 0 && t.Role != "result" {
			data.Maps = append(data.Maps, t.shardingMap(r.LogicalDevices))
		}
	}
	if err := page.Execute(w, data); err != nil {
		return &errkind.Fault{Op: "report: write the page", Err: err}
	}
	return nil
}

// The tensors that a page lists and draws.
const (
	pageTensors = 100
	pageMaps    = 12
)

// sizeData is a number of bytes with its exact value beside it.
func sizeData(n int64) template.HTML {
	return template.HTML(fmt.Sprintf(`<data value="%d">%s</data>`, n, Bytes(n)))
}

func dimsText(dims []int) string {
	parts := make([]string, len(dims))
	for i, d := range dims {
		parts[i] = strconv.Itoa(d)
	}
	return "[" + strings.Join(parts, ", ") + "]"
}

// barPiece is a piece of the memory bar. X and Width are in thousandths.
type barPiece struct {
	memoryPart
	X, Width float64
}

// bar lays the parts side by side on a scale of which 1000 is the limit, or the total if that is
// more or the limit is not known.
func (m Memory) bar() []barPiece {
	scale := float64(max(m.Limit, m.Total, 1))
	var bar []barPiece
	x := 0.0
	for _, part := range m.parts() {
		if part.Bytes <= 0 || part.Letter == "" {
			continue
		}
		width := 1000 * float64(part.Bytes) / scale
		bar = append(bar, barPiece{part, x, width})
		x += width
	}
	return bar
}

// shardingMap is a drawing of who holds what of a tensor.
type shardingMap struct {
	Tensor        Tensor
	Width, Height int
	Tiles         []tile
}

type tile struct {
	X, Y, Width, Height int
	Color, Text         string
}

// The longer side of a drawing, and the least of the shorter, in pixels.
const mapSide, mapLeast = 150, 48

// shardingMap draws the last two dimensions; a vector is one row.
func (t Tensor) shardingMap(logicalDevices int) shardingMap {
	rank := len(t.Shape)
	rows, columns := 1, max(t.Shape[rank-1], 1)
	if rank > 1 {
		rows = max(t.Shape[rank-2], 1)
	}
	m := shardingMap{Tensor: t, Width: mapSide, Height: mapSide}
	if rows < columns {
		m.Height = max(mapSide*rows/columns, mapLeast)
	} else {
		m.Width = max(mapSide*columns/rows, mapLeast)
	}
	if len(t.Starts) == 0 {
		text := "all"
		if logicalDevices == 1 {
			text = "0"
		}
		m.Tiles = []tile{{0, 0, m.Width, m.Height, "var(--all)", text}}
		return m
	}
	at := map[[2]int]int{} // place -> its tile
	for device, start := range t.Starts {
		column, row := start[rank-1], 0
		height := 1
		if rank > 1 {
			row, height = start[rank-2], t.Shard[rank-2]
		}
		if i, taken := at[[2]int{row, column}]; taken {
			m.Tiles[i].Text += "," + strconv.Itoa(device)
			continue
		}
		at[[2]int{row, column}] = len(m.Tiles)
		x, y := scale(column, columns, m.Width), scale(row, rows, m.Height)
		m.Tiles = append(m.Tiles, tile{
			X: x, Y: y, Width: scale(column+t.Shard[rank-1], columns, m.Width) - x, Height: scale(row+height, rows, m.Height) - y,
			Color: fmt.Sprintf("hsl(%d,70%%,75%%)", device*360/max(logicalDevices, 1)), Text: strconv.Itoa(device),
		})
	}
	return m
}

// scale maps an index onto pixels.
func scale(index, size, pixels int) int {
	return int(float64(pixels) * float64(index) / float64(max(size, 1)))
}
