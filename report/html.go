package report

import (
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/internal/units"
	"github.com/tpustrategy/tpustrategy/internal/uplot"
	"github.com/tpustrategy/tpustrategy/report/cost"
)

var (
	//go:embed page.html
	pageForm string
	//go:embed page.js
	pageProgram template.JS
)

var page = template.Must(template.New("page").Funcs(functions).Funcs(template.FuncMap{
	"size": sizeData, "dims": dimsText, "line": (*Report).line, "cards": (*Report).cards, "pieces": Memory.barPieces,
	"isSmall": Memory.isSmall, "maps": (*Report).shardingMaps,
	"moved": Line.moved, "directions": linkLoads,
	"width": func(x, of float64) template.CSS { return template.CSS(fmt.Sprintf("%.2f%%", 100*x/max(of, 1e-12))) },
}).Parse(pageForm))

// WriteHTML writes the report as one page with diagrams: the memory of a core and its use over the
// schedule, the predicted time by layer and as a timeline, the slice with its communication, and
// the shards of the largest tensors. The page is self-contained, needs no network and follows the
// browser's theme. In a browser without scripts it shows the figures.
func (r *Report) WriteHTML(w io.Writer) error {
	data := struct {
		*Report
		Style            template.CSS
		Library, Program template.JS
		Data             any // input of the page's program
	}{Report: r, Style: uplot.Style, Library: uplot.Program(), Program: pageProgram}
	if r.Schedule != nil {
		lines := make([]string, len(r.Lines))
		for k, l := range r.Lines {
			lines[k] = l.String()
		}
		data.Data = map[string]any{"lines": lines, "schedule": r.Schedule, "torus": r.Torus, "collectives": r.Collectives,
			"limit": r.Memory.Limit}
	}
	if err := page.Execute(w, data); err != nil {
		return &errkind.Fault{Op: "report: write the page", Err: err}
	}
	return nil
}

func (l Line) moved() (bytes int64) {
	for _, c := range l.Collectives {
		bytes = sum64(bytes, c.Moved)
	}
	return bytes
}

// line returns the line of Go with the given number in Lines as text. If the number is 0, the line
// is unknown, and the result is "".
func (r *Report) line(number int) string {
	if number < 1 || number > len(r.Lines) {
		return ""
	}
	return r.Lines[number-1].String()
}

type card struct{ Name, Figure, Note string }

func (r *Report) cards() (cards []card) {
	add := func(name, figure, format string, args ...any) {
		cards = append(cards, card{name, figure, fmt.Sprintf(format, args...)})
	}
	if m := r.Memory; m.Limit > 0 && m.Needs > 0 {
		add("memory of a core", units.Bytes(m.Needs), "%s of %s: %s", memoryPercent(m), units.Bytes(m.Limit), m.Verdict)
	} else if m.Needs > 0 {
		add("memory of a core", units.Bytes(m.Needs), "unknown size")
	}
	if p := r.Predicted; p != nil && p.Seconds > 0 {
		add("step time", units.Seconds(p.Seconds), "predicted")
		add("waiting", percentText((p.Interconnect.Exposed+p.Network.Exposed)/p.Seconds), "of the step, for collectives")
		if p.Utilization > 0 {
			add("utilization", percentText(p.Utilization), "of the peak, predicted")
		}
	}
	if r.Parameters > 0 {
		add("parameters", units.SI(float64(r.Parameters), ""), "of the model")
	}
	return cards
}

// axisLinks describes the links along one axis of a slice. MaxBytes is the number of bytes that the
// busiest link transfers.
type axisLinks struct {
	Axis     string
	Chips    int
	Ring     bool
	MaxBytes int64
}

func linkLoads(t *cost.Torus) (all []axisLinks) {
	if t == nil || len(t.Groups) == 0 || len(t.Places) == 0 {
		return nil
	}
	for d, n := range t.Shape {
		if n < 2 {
			continue
		}
		along := axisLinks{Axis: "xyz"[d : d+1], Chips: n, Ring: t.Rings[d]}
		for _, l := range t.Links {
			if l.Axis == d {
				along.MaxBytes = max(along.MaxBytes, l.Bytes, l.Back)
			}
		}
		all = append(all, along)
	}
	return all
}

func sizeData(n int64) template.HTML {
	return template.HTML(fmt.Sprintf(`<data value="%d">%s</data>`, n, units.Bytes(n)))
}

func dimsText(dims []int) string { return strings.ReplaceAll(fmt.Sprint(dims), " ", ", ") }

// barPiece is a part of the bar that shows the memory of a core. X and Width are in thousandths of
// the bar.
type barPiece struct {
	memoryPart
	X, Width float64
}

// barPieces returns the parts of the memory bar from left to right. The whole bar, whose width is
// 1000, is the memory of a core. If the program needs more than this memory or only a small part of
// it, or if its size is unknown, the whole bar is the memory that the program needs.
func (m Memory) barPieces() []barPiece {
	scale := float64(max(m.Limit, m.Total, 1))
	if m.isSmall() {
		scale = float64(m.Total)
	}
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

// isSmall reports whether a program uses less than 2 % of the memory, so that a bar for the
// complete memory would appear empty.
func (m Memory) isSmall() bool { return m.Total > 0 && m.Total < m.Limit/50 }

type shardingMap struct {
	Tensor        tensorGroup
	Width, Height int
	Tiles         []tile
}

type tile struct {
	X, Y, Width, Height int
	Color, Text         string
}

func (r *Report) shardingMaps() (all []shardingMap) {
	const most = 12
	for _, t := range r.groupTensors() {
		if len(all) < most && len(t.Shape) > 0 && t.Role != "result" {
			all = append(all, t.shardingMap(r.LogicalDevices))
		}
	}
	return all
}

// The longer side of a diagram, and the minimum of the shorter side, in pixels.
const mapSide, mapLeast = 150, 48

// shardingMap returns a diagram of the last two dimensions of a tensor and their shards. A vector
// is drawn as one row. If one of these dimensions is sharded over the replicas, the diagram
// contains the shards of all replicas.
func (t tensorGroup) shardingMap(logicalDevices int) shardingMap {
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
	at := map[[2]int]int{} // maps a place to its tile
	place := func(device, replica int, start []int) {
		column, row := start[rank-1], 0
		height := 1
		if rank > 1 {
			row, height = start[rank-2], t.Shard[rank-2]
		}
		if replica > 0 && (column >= columns || row >= rows) {
			return // an empty shard
		}
		if i, taken := at[[2]int{row, column}]; taken {
			if replica == 0 {
				m.Tiles[i].Text += "," + strconv.Itoa(device)
			}
			return
		}
		at[[2]int{row, column}] = len(m.Tiles)
		x, y := toPixels(column, columns, m.Width), toPixels(row, rows, m.Height)
		one := tile{X: x, Y: y, Width: toPixels(min(column+t.Shard[rank-1], columns), columns, m.Width) - x,
			Height: toPixels(min(row+height, rows), rows, m.Height) - y}
		one.Color, one.Text = fmt.Sprintf("hsl(%d,70%%,75%%)", device*360/max(logicalDevices, 1)), strconv.Itoa(device)
		if replica > 0 {
			one.Color, one.Text = fmt.Sprintf("hsl(%d,30%%,88%%)", device*360/max(logicalDevices, 1)), ""
		}
		m.Tiles = append(m.Tiles, one)
	}
	replicas, dim, part := 1, rank-1, 0
	if c := t.ReplicaShard; c != nil && c.Dim >= max(rank-2, 0) && c.Dim < rank {
		replicas, dim, part = min(c.Replicas, mapSide/2), c.Dim, c.Size
	}
	for replica := range max(replicas, 1) {
		for device, start := range t.Starts {
			start = slices.Clone(start)
			start[dim] += replica * part
			place(device, replica, start)
		}
	}
	return m
}

func toPixels(index, size, pixels int) int {
	return int(float64(pixels) * float64(index) / float64(max(size, 1)))
}
