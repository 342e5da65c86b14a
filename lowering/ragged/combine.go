package ragged

import (
	"slices"
	"strings"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/go-xla/stablehlo"
	"github.com/gomlx/go-xla/types"
	xshapes "github.com/gomlx/go-xla/types/shapes"
)

// The ops here combine elements. The padding of their operands becomes what changes nothing.

// reduce masks with the value that it starts from, which by StableHLO's rules changes nothing.
func (r *rewriter) reduce(s, copied *stablehlo.Statement) error {
	over := ints(s, "dimensions")
	n := len(s.Inputs) / 2
	for i := range n {
		dims := r.dims[s.Inputs[i].String()]
		copied.Inputs[i] = r.masked(copied.Inputs[i], dims, among(dims, over), func() *stablehlo.Value { return copied.Inputs[n+i] })
	}
	return r.sameAttributes(s)
}

// dot masks both sides of a contraction: a number times NaN is NaN.
func (r *rewriter) dot(s, copied *stablehlo.Statement) error {
	for i, side := range []string{"lhs", "rhs"} {
		dims := r.dims[s.Inputs[i].String()]
		over := field(s, "dot_dimension_numbers", side+"_contracting_dimensions")
		copied.Inputs[i] = r.masked(copied.Inputs[i], dims, among(dims, over), r.zero(s.Inputs[i].Shape().DType))
	}
	return r.sameAttributes(s)
}

// convolution contracts the input's features with the kernel's, in gradients the batch. Windows
// over padded dimensions are refused.
func (r *rewriter) convolution(s, copied *stablehlo.Statement) error {
	layout := strings.TrimSuffix(strings.TrimPrefix(attribute(s, "dimension_numbers"), "#stablehlo.conv<"), ">")
	var axes [3][]string
	for i, part := range strings.FieldsFunc(layout, func(c rune) bool { return c == '[' || c == ']' }) {
		if i%2 == 0 { // what is between is x and ->
			axes[min(i/2, 2)] = strings.Split(part, ", ")
		}
	}
	grouped := flag(s, "feature_group_count") != "1" || flag(s, "batch_group_count") != "1"
	for i, free := range []string{"b", "o"} {
		dims := r.dims[s.Inputs[i].String()]
		var contracted []int
		for _, d := range padded(dims) {
			switch axis := axes[i][d]; {
			case axis == free && (!grouped || i == 0 && flag(s, "batch_group_count") == "1"):
			case (axis == "f" || axis == "i") && !grouped:
				contracted = append(contracted, d)
			case axis == free || axis == "f" || axis == "i":
				return r.refuse(s, i, d, "convolution", "its groups cut the padded dimension", "use one group")
			default:
				return r.refuse(s, i, d, "convolution", "its windows reach over the padded dimension", "convolve over other dimensions")
			}
		}
		copied.Inputs[i] = r.masked(copied.Inputs[i], dims, contracted, r.zero(s.Inputs[i].Shape().DType))
	}
	return r.sameAttributes(s)
}

// reduceWindow masks what windows reach over, and needs an output for each input there: as many
// elements before and after as the window is long.
func (r *rewriter) reduceWindow(s, copied *stablehlo.Statement) error {
	if len(s.Inputs) != 2 {
		return r.refuse(s, 0, -1, "reduce_window", "it has several operands", "")
	}
	window, strides, paddings := ints(s, "window_dimensions"), ints(s, "window_strides"), ints(s, "padding")
	base, dilations := ints(s, "base_dilations"), ints(s, "window_dilations")
	dims := r.dims[s.Inputs[0].String()]
	var over []int
	for _, d := range padded(dims) {
		size := s.Inputs[0].Shape().Dimensions[d]
		low, high := paddings[2*d], paddings[2*d+1]
		if at(strides, d) != 1 || at(base, d) != 1 || at(dilations, d) != 1 || low+high != window[d]-1 {
			return r.refuse(s, 0, d, "reduce_window", "its windows leave rows out", "use strides of 1 along the padded dimension")
		}
		if window[d] == 1 {
			continue
		}
		varies := len(r.varying[s]) > 0
		if varies && (window[d] != size || low != 0 && high != 0) {
			return r.refuse(s, 0, d, "reduce_window", "its window changes with the padded size", "use a window of one size, or of all rows (graph.CumSum)")
		}
		over = append(over, d)
	}
	if len(r.varying[s]) > 0 && len(over) == 0 {
		return r.sameAttributes(s)
	}
	copied.Inputs[0] = r.masked(copied.Inputs[0], dims, over, func() *stablehlo.Value { return copied.Inputs[1] })
	return nil
}

// at is a number of a list that may be left out, which is 1 then.
func at(list []int, i int) int {
	if i < len(list) {
		return list[i]
	}
	return 1
}

func (r *rewriter) selectAndScatter(s *stablehlo.Statement) error {
	window, strides, paddings := ints(s, "window_dimensions"), ints(s, "window_strides"), ints(s, "padding")
	for _, d := range padded(r.dims[s.Inputs[0].String()]) {
		if at(window, d) != 1 || at(strides, d) != 1 || 2*d+1 < len(paddings) && (paddings[2*d] != 0 || paddings[2*d+1] != 0) {
			return r.refuse(s, 0, d, "select_and_scatter", "its windows reach over the padded dimension", "pool over other dimensions")
		}
	}
	return r.sameAttributes(s)
}

// gather reads rows by positions. Those in the padding are held back to the last real row, as
// positions behind the end are.
func (r *rewriter) gather(s, copied *stablehlo.Statement) error {
	const key = "dimension_numbers"
	operand, positions := s.Inputs[0], s.Inputs[1]
	dims, at := r.dims[operand.String()], r.dims[positions.String()]
	sizes, indexed := ints(s, "slice_sizes"), field(s, key, "start_index_map")
	vector := field(s, key, "index_vector_dim")[0]
	if vector < len(at) && at[vector].Padded() {
		return r.refuse(s, 1, vector, "gather", "how many coordinates a position has changes with the padded size", "")
	}
	var limited []int // coordinates along padded dimensions
	for _, d := range padded(dims) {
		if sizes[d] == operand.Shape().Dimensions[d] && r.varies(s, "slice_sizes") {
			continue // whole: it starts at 0
		}
		i := slices.Index(indexed, d)
		if i < 0 || sizes[d] != 1 {
			return r.refuse(s, 0, d, "gather", "it takes several rows at once", "gather them one by one")
		}
		if len(padded(at)) == 0 {
			return r.refuse(s, 0, d, "gather", "a replica may not have the rows that it takes", "choose rows by their contents with graph.Where")
		}
		limited = append(limited, i)
	}
	for _, key := range r.varying[s] {
		if key != "slice_sizes" {
			return r.sameAttributes(s)
		}
	}
	if len(limited) > 0 {
		copied.Inputs[1] = r.held(copied.Inputs[1], dims, indexed, limited, vector)
		r.setFlag(copied, "indices_are_sorted")
	}
	return nil
}

// held keeps positions below the real sizes of the dimensions that they are in.
func (r *rewriter) held(positions *stablehlo.Value, dims []Dim, indexed, limited []int, vector int) *stablehlo.Value {
	shape := positions.Shape().Clone()
	dtype := shape.DType
	for _, i := range limited {
		limit := r.limit(dims[indexed[i]])
		positions = r.write(func() *stablehlo.Value {
			last := r.do(stablehlo.Subtract(r.do(stablehlo.Convert(limit, dtype)), r.constant("1", dtype)))
			least := r.do(stablehlo.Minimum(positions, r.spread(last, shape.Dimensions)))
			if vector == shape.Rank() {
				return least
			}
			index := r.do(r.host.Iota(xshapes.Make(dtypes.Int32, shape.Dimensions...), vector))
			this := r.do(stablehlo.Compare(index, r.spread(r.constantInt(i), shape.Dimensions), types.CompareEQ, types.CompareSigned))
			return r.do(stablehlo.Select(this, least, positions))
		})
	}
	return positions
}

// scatter leaves out the updates of padding: their positions are outside, which StableHLO skips,
// and their values nothing.
func (r *rewriter) scatter(s, copied *stablehlo.Statement) error {
	const key = "scatter_dimension_numbers"
	if len(s.Inputs) != 3 {
		return r.refuse(s, 0, -1, "scatter", "it has several operands", "")
	}
	operand, positions, updates := s.Inputs[0], s.Inputs[1], s.Inputs[2]
	window, inserted := field(s, key, "update_window_dims"), field(s, key, "inserted_window_dims")
	vector := field(s, key, "index_vector_dim")[0]
	// Windows must have all of a padded dimension, on both sides.
	next := 0
	for d, dim := range r.dims[operand.String()] {
		if slices.Contains(inserted, d) {
			continue
		}
		from := window[next]
		next++
		if other := r.dims[updates.String()][from]; other != dim || dim.Padded() && updates.Shape().Dimensions[from] != operand.Shape().Dimensions[d] {
			return r.refuse(s, 0, d, "scatter", "its windows are of another size than the padded dimension", "scatter whole rows")
		}
	}
	at := r.dims[positions.String()]
	rows := padded(at)
	if slices.Contains(rows, vector) {
		return r.refuse(s, 1, vector, "scatter", "how many coordinates a position has changes with the padded size", "")
	}
	if len(rows) > 0 {
		copied.Inputs[1] = r.masked(copied.Inputs[1], at, rows, func() *stablehlo.Value { return r.constant("-1", positions.Shape().DType) })
		r.setFlag(copied, "indices_are_sorted")
		r.setFlag(copied, "unique_indices")
		if sums(s.FunctionParameters[0]) {
			dims := r.dims[updates.String()]
			var free []int
			for _, d := range padded(dims) {
				if !slices.Contains(window, d) {
					free = append(free, d)
				}
			}
			copied.Inputs[2] = r.masked(copied.Inputs[2], dims, free, r.zero(updates.Shape().DType))
		}
	}
	return r.sameAttributes(s)
}

// sums reports whether a function of two elements adds them.
func sums(f *stablehlo.Function) bool {
	return len(f.Statements) == 2 && opName(f.Statements[0]) == "add"
}

// setFlag sets an attribute that promises something of the positions to false.
func (r *rewriter) setFlag(s *stablehlo.Statement, key string) {
	if _, ok := s.Attributes[key]; !ok {
		return
	}
	attributes := map[string]any{}
	for k, v := range s.Attributes {
		attributes[k] = v
	}
	attributes[key] = false
	s.Attributes = attributes
}

func (r *rewriter) varies(s *stablehlo.Statement, key string) bool {
	return slices.Contains(r.varying[s], key)
}
