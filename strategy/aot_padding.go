package strategy

import (
	"slices"

	"github.com/tpustrategy/tpustrategy/lowering/ragged"
)

// standIn are real sizes for a value that a saved step was compiled for: others than the
// padded ones, and the same for dimensions that have one size.
func standIn(shape, sizes []int) [][]int {
	real := slices.Clone(shape)
	for d, size := range sizes {
		if d < len(real) && size >= 0 {
			real[d] = -1 - size
		}
	}
	return [][]int{real}
}

// setPadding is what a saved step knows of its padding.
func (p *program) setPadding(h stepHeader) {
	argument := 0
	for _, a := range h.Arguments {
		if a.Variable {
			continue
		}
		p.padding.of = append(p.padding.of, a.Sizes)
		for d, size := range a.Sizes {
			if size == len(p.padding.sizes) && d < len(a.Local) {
				p.padding.sizes = append(p.padding.sizes, paddedSize{argument, d, a.Local[d]})
			}
		}
		argument++
	}
	results := h.Results[:max(len(h.Results)-len(h.Updates), 0)]
	if !slices.ContainsFunc(results, func(t stepTensor) bool { return len(t.Cut) > 0 }) {
		return
	}
	for _, r := range results {
		dims := r.Cut
		for _, dim := range dims { // of a file
			if len(dims) != len(r.Local) || dim.Size < 0 || dim.Size >= len(p.padding.sizes) || dim.Times < 0 {
				dims = []ragged.Dim{}
			}
		}
		p.cut = append(p.cut, dims)
	}
}
