package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/tpustrategy/tpustrategy/tpu"
)

// Maximum numbers of columns, rows and planes of a drawing. The remainder of a larger mesh is omitted.
const (
	maxDrawnColumns = 16
	maxDrawnRows    = 32
	maxDrawnPlanes  = 4
)

// drawMesh draws a mesh of chips plane by plane, with x to the right and y down. Each cell shows a
// chip with the label of each of its cores, as returned by text. A tilde at the edge marks an axis
// that is a ring. A vertical bar separates slices.
func drawMesh(w io.Writer, t tpu.Topology, wrap [3]bool, slices int, text func(tpu.Coordinates) string) {
	mesh := t.MeshShape()
	perSlice := mesh[0] / max(slices, 1)
	columns, rows, planes := min(mesh[0], maxDrawnColumns), min(mesh[1], maxDrawnRows), min(mesh[2], maxDrawnPlanes)
	width := 0
	cells := map[[3]int]string{}
	for z := range planes {
		for y := range rows {
			for x := range columns {
				var cores []string
				for core := range mesh[3] {
					cores = append(cores, text(tpu.Coordinates{x, y, z, core}))
				}
				cell := strings.Join(cores, ",")
				cells[[3]int{x, y, z}] = cell
				width = max(width, len(cell))
			}
		}
	}
	edge := func(wraps bool) string {
		if wraps {
			return "~"
		}
		return " "
	}
	for z := range planes {
		if mesh[2] > 1 {
			fmt.Fprintf(w, "  z=%d%s\n", z, edge(wrap[2] && (z == 0 || z == mesh[2]-1)))
		}
		var head strings.Builder
		for x := range columns {
			fmt.Fprintf(&head, "  %-*s", width, fmt.Sprintf("x=%d%s", x, strings.TrimSpace(edge(wrap[1]))))
		}
		fmt.Fprintf(w, "         %s\n", strings.TrimRight(head.String(), " "))
		for y := range rows {
			var row strings.Builder
			for x := range columns {
				separator := " "
				if x > 0 && x%perSlice == 0 {
					separator = "|"
				}
				fmt.Fprintf(&row, "%s %-*s", separator, width, cells[[3]int{x, y, z}])
			}
			closing := strings.TrimRight(edge(wrap[0]), " ")
			fmt.Fprintf(w, "  %-6s%s%s\n", fmt.Sprintf("y=%d", y), edge(wrap[0]), strings.TrimRight(row.String(), " ")+closing)
		}
		writeOmitted(w, "rows", mesh[1]-rows)
	}
	writeOmitted(w, "columns", mesh[0]-columns)
	writeOmitted(w, "planes", mesh[2]-planes)
}

func writeOmitted(w io.Writer, what string, n int) {
	if n > 0 {
		fmt.Fprintf(w, "  ... %d more %s\n", n, what)
	}
}
