package ragged

import (
	"slices"

	"github.com/tpustrategy/tpustrategy/lowering/ir"
)

// The ops in this file combine elements. Padding in their operands is replaced by a neutral
// element.

// rewriteReduce masks padding with the reduction's initial value, which StableHLO requires to be
// neutral.
func (r *rewriter) rewriteReduce(s, rewritten *ir.Statement) {
	over := attributeInts(s, "dimensions")
	n := len(s.Operands) / 2
	for i := range n {
		dims := r.dims[s.Operands[i]]
		rewritten.Operands[i] = r.maskPadding(rewritten.Operands[i], dims, paddedDimsIn(dims, over),
			func() *ir.Value { return rewritten.Operands[n+i] })
	}
	r.rejectVaryingAttributes(s)
}

// rewriteDot masks padding in both operands with zeros, because 0 times NaN is NaN.
func (r *rewriter) rewriteDot(s, rewritten *ir.Statement) {
	for i, side := range []string{"lhs", "rhs"} {
		dims := r.dims[s.Operands[i]]
		over := fieldDims(s, "dot_dimension_numbers", side+"_contracting_dimensions")
		rewritten.Operands[i] = r.maskPadding(rewritten.Operands[i], dims, paddedDimsIn(dims, over),
			r.zeroOf(s.Operands[i].Type.DType))
	}
	r.rejectVaryingAttributes(s)
}

// rewriteConvolution masks padding in contracted dimensions: the features and, in gradients, the
// batch. It rejects windows over padded dimensions.
func (r *rewriter) rewriteConvolution(s, rewritten *ir.Statement) {
	axes, ok := s.Attribute("dimension_numbers").(ir.ConvDimensionNumbers)
	if !ok {
		panic(unknownAttributeError(s, "dimension_numbers"))
	}
	batches := !slices.Equal(attributeInts(s, "batch_group_count"), []int{1})
	grouped := batches || !slices.Equal(attributeInts(s, "feature_group_count"), []int{1})
	for i, free := range []string{"b", "o"} {
		dims := r.dims[s.Operands[i]]
		var contracted []int
		for _, d := range paddedDims(dims) {
			switch axis := axes[i][d]; {
			case axis == free && (!grouped || i == 0 && !batches):
			case (axis == "f" || axis == "i") && !grouped:
				contracted = append(contracted, d)
			case axis == free || axis == "f" || axis == "i":
				r.reject(s, i, d, "convolution", "its groups split the padded dimension", "use one group")
			default:
				r.reject(s, i, d, "convolution", "its windows reach over the padded dimension",
					"convolve over other dimensions")
			}
		}
		rewritten.Operands[i] = r.maskPadding(rewritten.Operands[i], dims, contracted,
			r.zeroOf(s.Operands[i].Type.DType))
	}
	r.rejectVaryingAttributes(s)
}

// rewriteReduceWindow masks padding in the input of a window reduction. A padded dimension must
// have one output per input: stride 1, and padding of the window size minus 1.
func (r *rewriter) rewriteReduceWindow(s, rewritten *ir.Statement) {
	if len(s.Operands) != 2 {
		r.reject(s, 0, -1, "reduce_window", "it has several operands", "")
	}
	window, strides, paddings := attributeInts(s, "window_dimensions"), attributeInts(s, "window_strides"),
		attributeInts(s, "padding")
	base, dilations := attributeInts(s, "base_dilations"), attributeInts(s, "window_dilations")
	dims := r.dims[s.Operands[0]]
	var over []int
	for _, d := range paddedDims(dims) {
		size := s.Operands[0].Type.Dims[d]
		low, high := paddings[2*d], paddings[2*d+1]
		if elementOrOne(strides, d) != 1 || elementOrOne(base, d) != 1 || elementOrOne(dilations, d) != 1 ||
			low+high != window[d]-1 {
			r.reject(s, 0, d, "reduce_window", "its windows skip rows", "use strides of 1 along the padded dimension")
		}
		if window[d] == 1 {
			continue
		}
		varies := len(r.varyingAttributes[s]) > 0
		if varies && (window[d] != size || low != 0 && high != 0) {
			r.reject(s, 0, d, "reduce_window", "its window changes with the padded size",
				"use a window of one size, or of all rows (graph.CumSum)")
		}
		over = append(over, d)
	}
	if len(over) == 0 {
		r.rejectVaryingAttributes(s)
	}
	rewritten.Operands[0] = r.maskPadding(rewritten.Operands[0], dims, over,
		func() *ir.Value { return rewritten.Operands[1] })
}

// elementOrOne returns list[i], or 1 if the list is too short.
func elementOrOne(list []int, i int) int {
	if i < len(list) {
		return list[i]
	}
	return 1
}

func (r *rewriter) checkSelectAndScatter(s *ir.Statement) {
	window, strides, paddings := attributeInts(s, "window_dimensions"), attributeInts(s, "window_strides"),
		attributeInts(s, "padding")
	for _, d := range paddedDims(r.dims[s.Operands[0]]) {
		if elementOrOne(window, d) != 1 || elementOrOne(strides, d) != 1 || 2*d+1 < len(paddings) &&
			(paddings[2*d] != 0 || paddings[2*d+1] != 0) {
			r.reject(s, 0, d, "select_and_scatter", "its windows reach over the padded dimension",
				"pool over other dimensions")
		}
	}
	r.rejectVaryingAttributes(s)
}

// rewriteGather clamps the indices of a gather to the rows before the padding. StableHLO's gather
// only clamps them to the padded operand.
func (r *rewriter) rewriteGather(s, rewritten *ir.Statement) {
	const key = "dimension_numbers"
	operand, positions := s.Operands[0], s.Operands[1]
	dims, at := r.dims[operand], r.dims[positions]
	sizes, indexed := attributeInts(s, "slice_sizes"), fieldDims(s, key, "start_index_map")
	vector := fieldDims(s, key, "index_vector_dim")[0]
	if vector < len(at) && at[vector].IsPadded() {
		r.reject(s, 1, vector, "gather", "how many coordinates a position has changes with the padded size", "")
	}
	var limited []int // indices of coordinates of padded dimensions
	for _, d := range paddedDims(dims) {
		if sizes[d] == operand.Type.Dims[d] && r.attributeVaries(s, "slice_sizes") {
			continue // all of the dimension: the start is 0
		}
		i := slices.Index(indexed, d)
		if i < 0 || sizes[d] != 1 {
			r.reject(s, 0, d, "gather", "it reads several rows at once", "gather them one by one")
		}
		if len(paddedDims(at)) == 0 {
			r.reject(s, 0, d, "gather", "a replica may not have the rows that it reads",
				"choose rows by their contents with graph.Where")
		}
		limited = append(limited, i)
	}
	r.rejectVaryingAttributes(s, "slice_sizes")
	if len(limited) > 0 {
		rewritten.Operands[1] = r.clampPositions(rewritten.Operands[1], dims, indexed, limited, vector)
		r.clearFlag(rewritten, "indices_are_sorted")
	}
}

func (r *rewriter) clampPositions(positions *ir.Value, dims []Dim, indexed, limited []int, vector int) *ir.Value {
	shape, dtype := positions.Type.Dims, positions.Type.DType
	for _, i := range limited {
		last := r.addBinary("subtract", r.addConvert(r.realSize(dims[indexed[i]]), dtype),
			r.addConstant(ir.Integer(1), dtype))
		least := r.addBinary("minimum", positions, r.addBroadcast(last, shape))
		if vector == len(shape) {
			positions = least
			continue
		}
		index := r.addIota(vector, shape...)
		this := r.addCompare("EQ", index, r.addBroadcast(r.addInt(i), shape))
		positions = r.addSelect(this, least, positions)
	}
	return positions
}

// rewriteScatter ignores updates in the padding. It replaces their indices by -1, which StableHLO
// ignores, and, in sums, their values by 0.
func (r *rewriter) rewriteScatter(s, rewritten *ir.Statement) {
	const key = "scatter_dimension_numbers"
	if len(s.Operands) != 3 {
		r.reject(s, 0, -1, "scatter", "it has several operands", "")
	}
	operand, positions, updates := s.Operands[0], s.Operands[1], s.Operands[2]
	window, inserted := fieldDims(s, key, "update_window_dims"), fieldDims(s, key, "inserted_window_dims")
	vector := fieldDims(s, key, "index_vector_dim")[0]
	// Windows must cover a padded dimension completely, in the operand and in the updates.
	next := 0
	for d, dim := range r.dims[operand] {
		if slices.Contains(inserted, d) {
			continue
		}
		from := window[next]
		next++
		if other := r.dims[updates][from]; other != dim || dim.IsPadded() &&
			updates.Type.Dims[from] != operand.Type.Dims[d] {
			r.reject(s, 0, d, "scatter", "its windows do not have the size of the padded dimension",
				"scatter complete rows")
		}
	}
	at := r.dims[positions]
	rows := paddedDims(at)
	if slices.Contains(rows, vector) {
		r.reject(s, 1, vector, "scatter", "how many coordinates a position has changes with the padded size", "")
	}
	if len(rows) > 0 {
		rewritten.Operands[1] = r.maskPadding(rewritten.Operands[1], at, rows,
			func() *ir.Value { return r.addConstant(ir.Integer(-1), positions.Type.DType) })
		r.clearFlag(rewritten, "indices_are_sorted")
		r.clearFlag(rewritten, "unique_indices")
		if isSum(s.Regions[0]) {
			dims := r.dims[updates]
			var free []int
			for _, d := range paddedDims(dims) {
				if !slices.Contains(window, d) {
					free = append(free, d)
				}
			}
			rewritten.Operands[2] = r.maskPadding(rewritten.Operands[2], dims, free, r.zeroOf(updates.Type.DType))
		}
	}
	r.rejectVaryingAttributes(s)
}

// isSum reports whether the combiner region of a scatter is an addition.
func isSum(f *ir.Region) bool { return len(f.Body) == 2 && f.Body[0].Op == "stablehlo.add" }

func (r *rewriter) clearFlag(s *ir.Statement, key string) { s.ReplaceAttribute(key, ir.Bool(false)) }

func (r *rewriter) attributeVaries(s *ir.Statement, key string) bool {
	return slices.Contains(r.varyingAttributes[s], key)
}
