package sharding

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
)

// VisualizeOptions says which part of a tensor to draw.
type VisualizeOptions struct {
	// Dims are the two dimensions to draw: down, then across. Nil draws the first two dimensions,
	// and an only dimension across.
	Dims []int
	// At is the index in each dimension that is not drawn, one entry per dimension of the tensor.
	// If nil, it is 0 everywhere.
	At []int
	// MaxTiles is the largest number of tiles to draw in each direction. If there are more, only
	// the first and the last are drawn. 0 stands for 16.
	MaxTiles int
}

// Visualize draws, in ASCII, which devices hold which part of a tensor: a cell for each tile of two
// dimensions, with the devices that hold the tile. More than 65536 devices are an error.
func Visualize(w io.Writer, mesh Mesh, spec Spec, shape []int, options VisualizeOptions) error {
	if err := drawable(mesh.Size()); err != nil {
		return err
	}
	var held []holding
	for device := range mesh.Size() {
		ranges, err := IndexRanges(mesh, spec, shape, device)
		if err != nil {
			return err
		}
		held = append(held, holding{device, ranges})
	}
	return draw(w, fmt.Sprintf("%v of %v on %v", spec, shape, mesh), shape, held, options)
}

// VisualizeOp draws, as [Visualize] does, which of the devices 0 to devices-1 hold which part of a
// tensor under an [OpSharding].
func VisualizeOp(w io.Writer, op OpSharding, shape []int, devices int, options VisualizeOptions) error {
	if err := drawable(devices); err != nil {
		return err
	}
	var held []holding
	for device := range devices {
		ranges, holds, err := op.IndexRanges(shape, device)
		if err != nil {
			return err
		}
		if holds {
			held = append(held, holding{device, ranges})
		}
	}
	return draw(w, fmt.Sprintf("%v of %v on %d devices", op, shape, devices), shape, held, options)
}

// maxDrawn is the largest number of devices that are drawn.
const maxDrawn = 1 << 16

// drawable refuses a number of devices that no machine has: each is looked at.
func drawable(devices int) error {
	if devices < 0 || devices > maxDrawn {
		return wrong("visualize", fmt.Sprintf("give a number from 0 to %d", maxDrawn), "%d devices", devices)
	}
	return nil
}

type holding struct {
	device int
	ranges []Range
}

func draw(w io.Writer, title string, shape []int, held []holding, options VisualizeOptions) error {
	down, across, err := options.dims(len(shape))
	if err != nil {
		return err
	}
	at, err := options.at(shape, down, across)
	if err != nil {
		return err
	}
	var b strings.Builder
	b.WriteString(title)
	for _, dim := range []struct {
		number int
		name   string
	}{{down, "down"}, {across, "across"}} {
		if dim.number >= 0 {
			fmt.Fprintf(&b, ", dimension %d %s", dim.number, dim.name)
		}
	}
	for d := range shape {
		if d != down && d != across {
			fmt.Fprintf(&b, ", at %d in dimension %d", at[d], d)
		}
	}
	b.WriteByte('\n')
	held = slices.DeleteFunc(held, func(h holding) bool { return !h.covers(at, down, across) })
	rows, columns := grading{tilesOf(held, down), down >= 0}, grading{tilesOf(held, across), across >= 0}
	writeGrid(&b, rows, columns, options.MaxTiles, func(row, column Range) string {
		var devices []int
		for _, h := range held {
			if h.in(down) == row && h.in(across) == column {
				devices = append(devices, h.device)
			}
		}
		return compact(devices)
	})
	_, err = io.WriteString(w, b.String())
	return err
}

func (o VisualizeOptions) dims(rank int) (down, across int, err error) {
	switch {
	case o.MaxTiles < 0 || o.MaxTiles == 1:
		return 0, 0, wrong("visualize", "give at least 2, or 0 for 16", "MaxTiles is %d", o.MaxTiles)
	case o.Dims == nil && rank >= 2:
		return 0, 1, nil
	case o.Dims == nil:
		return -1, rank - 1, nil // -1 stands for no dimension
	case len(o.Dims) != 2 || o.Dims[0] == o.Dims[1] || slices.Min(o.Dims) < 0 || slices.Max(o.Dims) >= rank:
		return 0, 0, wrong("visualize", fmt.Sprintf("give two dimensions below the rank, %d", rank), "Dims is %v", o.Dims)
	}
	return o.Dims[0], o.Dims[1], nil
}

func (o VisualizeOptions) at(shape []int, down, across int) ([]int, error) {
	if o.At == nil {
		return make([]int, len(shape)), nil
	}
	if len(o.At) != len(shape) {
		return nil, wrong("visualize", fmt.Sprintf("give one entry per dimension, %d", len(shape)), "At is %v", o.At)
	}
	for d, at := range o.At {
		if d != down && d != across && (at < 0 || at >= max(shape[d], 1)) {
			return nil, wrong("visualize", "give an index below the size", "At is %d in dimension %d of size %d", at, d, shape[d])
		}
	}
	return o.At, nil
}

// covers reports whether the holding has the index in the dimensions that are not drawn. An empty
// dimension has no index to miss.
func (h holding) covers(at []int, down, across int) bool {
	for d, r := range h.ranges {
		if d != down && d != across && r.Len() > 0 && (at[d] < r.Start || at[d] >= r.Stop) {
			return false
		}
	}
	return true
}

// in returns the range in a dimension; -1 has one range.
func (h holding) in(dim int) Range {
	if dim < 0 {
		return Range{0, 1}
	}
	return h.ranges[dim]
}

func tilesOf(held []holding, dim int) []Range {
	var ranges []Range
	for _, h := range held {
		ranges = append(ranges, h.in(dim))
	}
	slices.SortFunc(ranges, func(a, b Range) int { return cmp.Or(a.Start-b.Start, a.Stop-b.Stop) })
	return slices.Compact(ranges)
}

// compact writes ascending devices with runs of three or more as 0-3.
func compact(devices []int) string {
	var parts []string
	for i := 0; i < len(devices); {
		end := i
		for end+1 < len(devices) && devices[end+1] == devices[end]+1 {
			end++
		}
		if end-i >= 2 {
			parts = append(parts, fmt.Sprintf("%d-%d", devices[i], devices[end]))
		} else {
			for _, d := range devices[i : end+1] {
				parts = append(parts, strconv.Itoa(d))
			}
		}
		i = end + 1
	}
	return strings.Join(parts, ",")
}

// grading is the tiles of one direction; those of no dimension are not named.
type grading struct {
	tiles []Range
	named bool
}

// writeGrid draws rows and columns, and the cell of each.
func writeGrid(b *strings.Builder, rows, columns grading, limit int, cell func(row, column Range) string) {
	if limit == 0 {
		limit = 16
	}
	shownRows, shownColumns := elide(len(rows.tiles), limit), elide(len(columns.tiles), limit)
	grid := [][]string{{""}}
	for _, c := range shownColumns {
		grid[0] = append(grid[0], columns.label(c))
	}
	for _, r := range shownRows {
		line := []string{rows.label(r)}
		for _, c := range shownColumns {
			text := "..."
			if r >= 0 && c >= 0 {
				text = cell(rows.tiles[r], columns.tiles[c])
			}
			line = append(line, text)
		}
		grid = append(grid, line)
	}
	widths := make([]int, len(grid[0]))
	for _, line := range grid {
		for i, text := range line {
			widths[i] = max(widths[i], len(text))
		}
	}
	rule := strings.Repeat(" ", widths[0]+1) + "+"
	for _, width := range widths[1:] {
		rule += strings.Repeat("-", width+2) + "+"
	}
	for i, line := range grid {
		text := "|"
		if i == 0 {
			text = " "
		}
		margin := fmt.Sprintf("%*s ", widths[0], line[0])
		for j, cell := range line[1:] {
			text += fmt.Sprintf(" %-*s ", widths[j+1], cell) + text[:1]
		}
		if i > 0 || columns.named {
			b.WriteString(strings.TrimRight(margin+text, " ") + "\n")
		}
		b.WriteString(rule + "\n")
	}
}

// elide returns the numbers below count, or, if they are more than limit, the first and last of
// them around a -1.
func elide(count, limit int) []int {
	var shown []int
	for i := range count {
		switch {
		case count <= limit || i < limit/2 || i >= count-limit/2:
			shown = append(shown, i)
		case i == limit/2:
			shown = append(shown, -1)
		}
	}
	return shown
}

func (g grading) label(i int) string {
	switch {
	case !g.named:
		return ""
	case i < 0:
		return "..."
	}
	return g.tiles[i].String()
}
