package ragged

import (
	"slices"

	"github.com/tpustrategy/tpustrategy/lowering/ir"
)

// The ops in this file combine elements. The padding of their operands is replaced by the neutral
// element.

// reduce masks its operands with its initial value, which StableHLO requires to be a neutral
// element.
func (r *rewriter) reduce(s, copied *ir.Statement) {
	over := ints(s, "dimensions")
	n := len(s.Operands) / 2
	for i := range n {
		dims := r.dims[s.Operands[i]]
		copied.Operands[i] = r.masked(copied.Operands[i], dims, among(dims, over), func() *ir.Value { return copied.Operands[n+i] })
	}
	r.sameAttributes(s)
}

// dot masks both operands of a contraction, because 0 times NaN is NaN.
func (r *rewriter) dot(s, copied *ir.Statement) {
	for i, side := range []string{"lhs", "rhs"} {
		dims := r.dims[s.Operands[i]]
		over := field(s, "dot_dimension_numbers", side+"_contracting_dimensions")
		copied.Operands[i] = r.masked(copied.Operands[i], dims, among(dims, over), r.zero(s.Operands[i].Type.DType))
	}
	r.sameAttributes(s)
}

// convolution masks the contracted dimensions: the input's features and the kernel's input
// features, and in gradients the batch. It rejects windows over padded dimensions.
func (r *rewriter) convolution(s, copied *ir.Statement) {
	axes, ok := s.Attribute("dimension_numbers").(ir.Layout)
	if !ok {
		panic(unknown(s, "dimension_numbers"))
	}
	batches := !slices.Equal(ints(s, "batch_group_count"), []int{1})
	grouped := batches || !slices.Equal(ints(s, "feature_group_count"), []int{1})
	for i, free := range []string{"b", "o"} {
		dims := r.dims[s.Operands[i]]
		var contracted []int
		for _, d := range padded(dims) {
			switch axis := axes[i][d]; {
			case axis == free && (!grouped || i == 0 && !batches):
			case (axis == "f" || axis == "i") && !grouped:
				contracted = append(contracted, d)
			case axis == free || axis == "f" || axis == "i":
				r.refuse(s, i, d, "convolution", "its groups cut the padded dimension", "use one group")
			default:
				r.refuse(s, i, d, "convolution", "its windows reach over the padded dimension", "convolve over other dimensions")
			}
		}
		copied.Operands[i] = r.masked(copied.Operands[i], dims, contracted, r.zero(s.Operands[i].Type.DType))
	}
	r.sameAttributes(s)
}

// reduceWindow masks the inputs of windows. It requires one output per input in a padded dimension:
// stride 1, and window size - 1 elements of padding.
func (r *rewriter) reduceWindow(s, copied *ir.Statement) {
	if len(s.Operands) != 2 {
		r.refuse(s, 0, -1, "reduce_window", "it has several operands", "")
	}
	window, strides, paddings := ints(s, "window_dimensions"), ints(s, "window_strides"), ints(s, "padding")
	base, dilations := ints(s, "base_dilations"), ints(s, "window_dilations")
	dims := r.dims[s.Operands[0]]
	var over []int
	for _, d := range padded(dims) {
		size := s.Operands[0].Type.Dims[d]
		low, high := paddings[2*d], paddings[2*d+1]
		if at(strides, d) != 1 || at(base, d) != 1 || at(dilations, d) != 1 || low+high != window[d]-1 {
			r.refuse(s, 0, d, "reduce_window", "its windows leave rows out", "use strides of 1 along the padded dimension")
		}
		if window[d] == 1 {
			continue
		}
		varies := len(r.varying[s]) > 0
		if varies && (window[d] != size || low != 0 && high != 0) {
			r.refuse(s, 0, d, "reduce_window", "its window changes with the padded size", "use a window of one size, or of all rows (graph.CumSum)")
		}
		over = append(over, d)
	}
	if len(over) == 0 {
		r.sameAttributes(s)
	}
	copied.Operands[0] = r.masked(copied.Operands[0], dims, over, func() *ir.Value { return copied.Operands[1] })
}

// at returns list[i], or 1 if the list is absent.
func at(list []int, i int) int {
	if i < len(list) {
		return list[i]
	}
	return 1
}

func (r *rewriter) selectAndScatter(s *ir.Statement) {
	window, strides, paddings := ints(s, "window_dimensions"), ints(s, "window_strides"), ints(s, "padding")
	for _, d := range padded(r.dims[s.Operands[0]]) {
		if at(window, d) != 1 || at(strides, d) != 1 || 2*d+1 < len(paddings) && (paddings[2*d] != 0 || paddings[2*d+1] != 0) {
			r.refuse(s, 0, d, "select_and_scatter", "its windows reach over the padded dimension", "pool over other dimensions")
		}
	}
	r.sameAttributes(s)
}

// gather reads rows at positions. Positions in the padding are clamped to the last real row, like
// positions past the end.
func (r *rewriter) gather(s, copied *ir.Statement) {
	const key = "dimension_numbers"
	operand, positions := s.Operands[0], s.Operands[1]
	dims, at := r.dims[operand], r.dims[positions]
	sizes, indexed := ints(s, "slice_sizes"), field(s, key, "start_index_map")
	vector := field(s, key, "index_vector_dim")[0]
	if vector < len(at) && at[vector].Padded() {
		r.refuse(s, 1, vector, "gather", "how many coordinates a position has changes with the padded size", "")
	}
	var limited []int // indices of coordinates of padded dimensions
	for _, d := range padded(dims) {
		if sizes[d] == operand.Type.Dims[d] && r.varies(s, "slice_sizes") {
			continue // all of the dimension: the start is 0
		}
		i := slices.Index(indexed, d)
		if i < 0 || sizes[d] != 1 {
			r.refuse(s, 0, d, "gather", "it takes several rows at once", "gather them one by one")
		}
		if len(padded(at)) == 0 {
			r.refuse(s, 0, d, "gather", "a replica may not have the rows that it takes", "choose rows by their contents with graph.Where")
		}
		limited = append(limited, i)
	}
	r.sameAttributes(s, "slice_sizes")
	if len(limited) > 0 {
		copied.Operands[1] = r.clamped(copied.Operands[1], dims, indexed, limited, vector)
		r.setFlag(copied, "indices_are_sorted")
	}
}

// clamped limits positions to the real sizes of their dimensions.
func (r *rewriter) clamped(positions *ir.Value, dims []Dim, indexed, limited []int, vector int) *ir.Value {
	shape, dtype := positions.Type.Dims, positions.Type.DType
	for _, i := range limited {
		last := r.binary("subtract", r.convert(r.limit(dims[indexed[i]]), dtype), r.constant(ir.Integer(1), dtype))
		least := r.binary("minimum", positions, r.spread(last, shape))
		if vector == len(shape) {
			positions = least
			continue
		}
		index := r.iota(vector, shape...)
		this := r.compare("EQ", index, r.spread(r.constantInt(i), shape))
		positions = r.choose(this, least, positions)
	}
	return positions
}

// scatter skips the updates in the padding: their positions are moved outside, which StableHLO
// skips, and their values are replaced by the neutral element.
func (r *rewriter) scatter(s, copied *ir.Statement) {
	const key = "scatter_dimension_numbers"
	if len(s.Operands) != 3 {
		r.refuse(s, 0, -1, "scatter", "it has several operands", "")
	}
	operand, positions, updates := s.Operands[0], s.Operands[1], s.Operands[2]
	window, inserted := field(s, key, "update_window_dims"), field(s, key, "inserted_window_dims")
	vector := field(s, key, "index_vector_dim")[0]
	// Windows must cover a padded dimension completely, in the operand and in the updates.
	next := 0
	for d, dim := range r.dims[operand] {
		if slices.Contains(inserted, d) {
			continue
		}
		from := window[next]
		next++
		if other := r.dims[updates][from]; other != dim || dim.Padded() && updates.Type.Dims[from] != operand.Type.Dims[d] {
			r.refuse(s, 0, d, "scatter", "its windows are of another size than the padded dimension", "scatter whole rows")
		}
	}
	at := r.dims[positions]
	rows := padded(at)
	if slices.Contains(rows, vector) {
		r.refuse(s, 1, vector, "scatter", "how many coordinates a position has changes with the padded size", "")
	}
	if len(rows) > 0 {
		copied.Operands[1] = r.masked(copied.Operands[1], at, rows, func() *ir.Value { return r.constant(ir.Integer(-1), positions.Type.DType) })
		r.setFlag(copied, "indices_are_sorted")
		r.setFlag(copied, "unique_indices")
		if sums(s.Regions[0]) {
			dims := r.dims[updates]
			var free []int
			for _, d := range padded(dims) {
				if !slices.Contains(window, d) {
					free = append(free, d)
				}
			}
			copied.Operands[2] = r.masked(copied.Operands[2], dims, free, r.zero(updates.Type.DType))
		}
	}
	r.sameAttributes(s)
}

// sums reports whether a function of two elements adds them.
func sums(f *ir.Region) bool { return len(f.Body) == 2 && f.Body[0].Op == "stablehlo.add" }

// setFlag sets an attribute that guarantees a property of the positions to false.
func (r *rewriter) setFlag(s *ir.Statement, key string) { s.Replace(key, ir.Flag(false)) }

func (r *rewriter) varies(s *ir.Statement, key string) bool {
	return slices.Contains(r.varying[s], key)
}
