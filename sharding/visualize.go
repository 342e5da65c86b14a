package sharding

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
)

// VisualizeOptions selects the part of a tensor to draw.
type VisualizeOptions struct {
	// Dims are the two dimensions to draw: first the vertical, then the horizontal one. If nil, the
	// first two dimensions are drawn. The only dimension of a vector is drawn horizontally.
	Dims []int
	// Indices selects the index in each dimension that is not drawn. It has one entry for each
	// dimension of the tensor. If nil, all indices are 0.
	Indices []int
	// MaxTiles is the maximum number of tiles to draw in each direction. If there are more, only
	// the first and the last tiles are drawn. 0 means 16.
	MaxTiles int
}

// Visualize draws a table in ASCII that shows which devices hold each shard of a tensor. The rows
// and columns are the shards of two tensor dimensions, and each cell lists the devices that hold
// the shard. The mesh must not have more than 65536 devices.
func Visualize(w io.Writer, mesh Mesh, spec Spec, shape []int, options VisualizeOptions) error {
	if err := checkDeviceCount(mesh.Size()); err != nil {
		return err
	}
	var shards []deviceShard
	for device := range mesh.Size() {
		ranges, err := IndexRanges(mesh, spec, shape, device)
		if err != nil {
			return err
		}
		shards = append(shards, deviceShard{device, ranges})
	}
	return drawTable(w, fmt.Sprintf("%v of %v on %v", spec, shape, mesh), shape, shards, options)
}

// VisualizeOp is like [Visualize], but draws an [OpSharding] on the devices 0 to devices-1.
func VisualizeOp(w io.Writer, op OpSharding, shape []int, devices int, options VisualizeOptions) error {
	if err := checkDeviceCount(devices); err != nil {
		return err
	}
	var shards []deviceShard
	for device := range devices {
		ranges, holds, err := op.IndexRanges(shape, device)
		if err != nil {
			return err
		}
		if holds {
			shards = append(shards, deviceShard{device, ranges})
		}
	}
	return drawTable(w, fmt.Sprintf("%v of %v on %d devices", op, shape, devices), shape, shards, options)
}

const maxDevices = 1 << 16

func checkDeviceCount(devices int) error {
	if devices < 0 || devices > maxDevices {
		return invalidError("visualize", fmt.Sprintf("the number of devices must be from 0 to %d", maxDevices), "%d devices",
			devices)
	}
	return nil
}

type deviceShard struct {
	device int
	ranges []Range
}

func drawTable(w io.Writer, title string, shape []int, shards []deviceShard, options VisualizeOptions) error {
	down, across, err := options.dimsToDraw(len(shape))
	if err != nil {
		return err
	}
	indices, err := options.resolveIndices(shape, down, across)
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
			fmt.Fprintf(&b, ", at %d in dimension %d", indices[d], d)
		}
	}
	b.WriteByte('\n')
	shards = slices.DeleteFunc(shards, func(s deviceShard) bool { return !s.contains(indices, down, across) })
	rows, columns := tableAxis{distinctRanges(shards, down), down >= 0}, tableAxis{distinctRanges(shards, across),
		across >= 0}
	writeGrid(&b, rows, columns, options.MaxTiles, func(row, column Range) string {
		var devices []int
		for _, s := range shards {
			if s.rangeIn(down) == row && s.rangeIn(across) == column {
				devices = append(devices, s.device)
			}
		}
		return formatDevices(devices)
	})
	_, err = io.WriteString(w, b.String())
	return err
}

func (o VisualizeOptions) dimsToDraw(rank int) (down, across int, err error) {
	switch {
	case o.MaxTiles < 0 || o.MaxTiles == 1:
		return 0, 0, invalidError("visualize", "MaxTiles must be at least 2, or 0 for 16", "MaxTiles is %d", o.MaxTiles)
	case o.Dims == nil && rank >= 2:
		return 0, 1, nil
	case o.Dims == nil:
		return -1, rank - 1, nil // -1 means no dimension
	case len(o.Dims) != 2 || o.Dims[0] == o.Dims[1] || slices.Min(o.Dims) < 0 || slices.Max(o.Dims) >= rank:
		return 0, 0, invalidError("visualize", fmt.Sprintf("use two different dimensions below the rank, %d", rank),
			"Dims is %v", o.Dims)
	}
	return o.Dims[0], o.Dims[1], nil
}

func (o VisualizeOptions) resolveIndices(shape []int, down, across int) ([]int, error) {
	if o.Indices == nil {
		return make([]int, len(shape)), nil
	}
	if len(o.Indices) != len(shape) {
		return nil, invalidError("visualize", fmt.Sprintf("Indices must have %d entries, one for each dimension", len(shape)),
			"Indices is %v", o.Indices)
	}
	for d, index := range o.Indices {
		if d != down && d != across && (index < 0 || index >= max(shape[d], 1)) {
			return nil, invalidError("visualize", "the index must be less than the size",
				"index %d in dimension %d of size %d", index, d, shape[d])
		}
	}
	return o.Indices, nil
}

// contains reports whether the shard includes the given indices. It ignores empty dimensions and
// the dimensions down and across, which are drawn.
func (h deviceShard) contains(indices []int, down, across int) bool {
	for d, r := range h.ranges {
		if d != down && d != across && r.Len() > 0 && (indices[d] < r.Start || indices[d] >= r.Stop) {
			return false
		}
	}
	return true
}

// rangeIn returns the range of the shard in a dimension. Dimension -1 has the single range 0:1.
func (h deviceShard) rangeIn(dim int) Range {
	if dim < 0 {
		return Range{0, 1}
	}
	return h.ranges[dim]
}

func distinctRanges(shards []deviceShard, dim int) []Range {
	var ranges []Range
	for _, h := range shards {
		ranges = append(ranges, h.rangeIn(dim))
	}
	slices.SortFunc(ranges, func(a, b Range) int { return cmp.Or(a.Start-b.Start, a.Stop-b.Stop) })
	return slices.Compact(ranges)
}

// formatDevices formats ascending device numbers. Three or more consecutive numbers are shortened,
// as in 0-3.
func formatDevices(devices []int) string {
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

// tableAxis describes the rows or the columns of a table: the distinct index ranges of the shards
// in one tensor dimension. If the tensor has no dimension to draw in this direction, hasLabels is
// false.
type tableAxis struct {
	tiles     []Range
	hasLabels bool
}

// writeGrid draws a table with the given rows and columns. cell returns the text of a cell.
func writeGrid(b *strings.Builder, rows, columns tableAxis, limit int, cell func(row, column Range) string) {
	if limit == 0 {
		limit = 16
	}
	shownRows, shownColumns := visibleIndices(len(rows.tiles), limit), visibleIndices(len(columns.tiles), limit)
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
		if i > 0 || columns.hasLabels {
			b.WriteString(strings.TrimRight(margin+text, " ") + "\n")
		}
		b.WriteString(rule + "\n")
	}
}

// visibleIndices returns the indices below count. If count is greater than limit, it returns only
// the first and the last indices, with -1 between them.
func visibleIndices(count, limit int) []int {
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

func (g tableAxis) label(i int) string {
	switch {
	case !g.hasLabels:
		return ""
	case i < 0:
		return "..."
	}
	return g.tiles[i].String()
}
