package ragged

import (
	"slices"

	"github.com/tpustrategy/tpustrategy/lowering/ir"
)

// elementwiseOps lists ops that never mix padding with other elements: elementwise ops, and ops
// that only move elements.
var elementwiseOps = map[string]bool{
	"abs": true, "add": true, "and": true, "atan2": true, "cbrt": true, "ceil": true, "clamp": true, "compare": true,
	"complex": true, "convert": true, "cosine": true, "count_leading_zeros": true, "divide": true, "erf": true,
	"exponential": true, "exponential_minus_one": true, "floor": true, "imag": true, "is_finite": true, "log": true,
	"log_plus_one": true, "logistic": true, "maximum": true, "minimum": true, "multiply": true, "negate": true,
	"not":                  true,
	"optimization_barrier": true, "or": true, "popcnt": true, "power": true, "real": true, "remainder": true,
	"round_nearest_afz": true, "round_nearest_even": true, "rsqrt": true, "select": true, "shift_left": true,
	"shift_right_arithmetic": true, "shift_right_logical": true, "sign": true, "sine": true, "sqrt": true,
	"subtract": true,
	"tan":      true, "tanh": true, "xor": true, "transpose": true, "broadcast_in_dim": true, "iota": true, "return": true,
	"reduce_precision": true, "batch_norm_inference": true,
	// Their bodies are rewritten separately. The carried values keep their shapes.
	"while": true, "if": true, "case": true,
	// Any random bits are valid.
	"rng_bit_generator": true,
}

// applyRule changes the operands of rewritten, a copy of s with padded dimensions, so that padding
// does not affect its result. It panics with an [*Error] if the op does not support padding.
func (r *rewriter) applyRule(s, rewritten *ir.Statement) {
	if s.Placeholder != nil {
		if op := r.placeholderEffect(s.Placeholder); op != "" {
			r.reject(s, 0, -1, op, "the replicas' real sizes differ",
				"reduce the padded dimension first, or return the value and reduce or gather it outside the step")
		}
		return
	}
	name := s.OpName()
	if elementwiseOps[name] {
		r.rejectVaryingAttributes(s)
		return
	}
	switch name {
	case "reshape":
		r.checkReshape(s)
	case "reduce":
		r.rewriteReduce(s, rewritten)
	case "dot_general":
		r.rewriteDot(s, rewritten)
	case "convolution":
		r.rewriteConvolution(s, rewritten)
	case "reduce_window":
		r.rewriteReduceWindow(s, rewritten)
	case "select_and_scatter":
		r.checkSelectAndScatter(s)
	case "slice":
		r.checkSlice(s)
	case "pad":
		r.checkPad(s)
	case "concatenate":
		r.rejectPaddedDims(s, "the result would have padding in the middle",
			"concatenate along another dimension, or return the tensors as separate results",
			attributeInts(s, "dimension"))
	case "reverse":
		r.rejectPaddedDims(s, "the padding would come first", "reverse before batching, or along another dimension",
			attributeInts(s, "dimensions"))
	case "sort":
		r.rejectPaddedDims(s, "padding would be sorted among the rows",
			"sort along another dimension, or return the rows and sort them outside the step",
			attributeInts(s, "dimension"))
	case "dynamic_slice":
		r.checkDynamicSlice(s)
	case "dynamic_update_slice":
		r.checkDynamicUpdateSlice(s)
	case "gather":
		r.rewriteGather(s, rewritten)
	case "scatter":
		r.rewriteScatter(s, rewritten)
	case "bitcast_convert":
		if v := s.Operands[0]; v.Type.Rank() != s.Results[0].Type.Rank() {
			r.rejectPaddedDims(s, "its bytes are numbers of other sizes", "",
				[]int{min(v.Type.Rank(), s.Results[0].Type.Rank())})
		}
	case "fft":
		rank, n := s.Operands[0].Type.Rank(), len(attributeInts(s, "fft_length"))
		r.rejectPaddedDims(s, "each output is of all rows", "", intRange(rank-n, rank))
	default:
		r.reject(s, 0, -1, name, "padding cannot be masked for this op",
			"do it outside the step, or mask the padding in the step (FunctionOptions.Padding: KeepPadding)")
	}
}

// reject makes [Plan.Apply] return an error about dimension dim of an operand. If dim is -1, the
// error is about the first padded dimension.
func (r *rewriter) reject(s *ir.Statement, operand, dim int, op, reason, hint string) {
	e := &Error{Op: op, Dim: dim, Reason: reason, Hint: hint}
	v := s.Results[0]
	if operand < len(s.Operands) {
		v = s.Operands[operand]
	}
	e.Shape = slices.Clone(v.Type.Dims)
	if all := paddedDims(r.dims[v]); dim < 0 && len(all) > 0 {
		e.Dim = all[0]
	}
	panic(e)
}

// rejectVaryingAttributes rejects an op with an attribute that depends on the sizes, except for the
// attributes in allowed.
func (r *rewriter) rejectVaryingAttributes(s *ir.Statement, allowed ...string) {
	for _, key := range r.varyingAttributes[s] {
		if !slices.Contains(allowed, key) {
			r.reject(s, 0, -1, s.OpName(), "its "+key+" changes with a padded size", "")
		}
	}
}

// rejectPaddedDims rejects an op if an operand is padded in one of the dimensions in list.
func (r *rewriter) rejectPaddedDims(s *ir.Statement, reason, hint string, list []int) {
	for i, v := range s.Operands {
		if at := paddedDimsIn(r.dims[v], list); len(at) > 0 {
			r.reject(s, i, at[0], s.OpName(), reason, hint)
		}
	}
}

func intRange(begin, end int) (all []int) {
	for i := max(begin, 0); i < end; i++ {
		all = append(all, i)
	}
	return all
}

// checkReshape rejects a reshape that merges a padded dimension with a dimension before it, or that
// splits a dimension so that an inner part is padded. The padding would not remain at the end.
func (r *rewriter) checkReshape(s *ir.Statement) {
	in, out := s.Operands[0], s.Results[0]
	from, to := r.shapes[in], r.shapes[out]
	fromDims, toDims := r.dims[in], r.dims[out]
	n := len(from)
	if slices.Contains(from[0], 0) {
		return
	}
	for i, j := 0, 0; i < len(from[0]) || j < len(to[0]); {
		a, b := slices.Repeat([]int{1}, n), slices.Repeat([]int{1}, n)
		firstIn, firstOut := i, j
		take := func(product []int, dims variantDims, next *int) {
			for k := range product {
				product[k] *= dims[k][*next]
			}
			*next++
		}
		if i < len(from[0]) {
			take(a, from, &i)
		}
		if j < len(to[0]) {
			take(b, to, &j)
		}
		for !slices.Equal(a, b) {
			if i < len(from[0]) && (a[0] <= b[0] || j == len(to[0])) {
				take(a, from, &i)
			} else if j < len(to[0]) {
				take(b, to, &j)
			} else {
				break
			}
		}
		if !isLeadingPadded(fromDims, from[0], firstIn, i) || !isLeadingPadded(toDims, to[0], firstOut, j) {
			r.reject(s, 0, -1, "reshape", "its padded dimension is joined with a dimension before it",
				"move the padded dimension to the front of those that are joined (graph.Transpose)")
		}
	}
}

// isLeadingPadded reports whether the dimensions begin to end-1 have no padding, except possibly
// the first dimension that is larger than 1.
func isLeadingPadded(dims []Dim, sizes []int, begin, end int) bool {
	first := true
	for d := begin; d < end; d++ {
		if dims[d].IsPadded() && !first {
			return false
		}
		if dims[d].IsPadded() || sizes[d] != 1 {
			first = false
		}
	}
	return true
}

// checkSlice rejects a slice that selects only a part of a padded dimension.
func (r *rewriter) checkSlice(s *ir.Statement) {
	starts, limits, strides := attributeInts(s, "start_indices"), attributeInts(s, "limit_indices"),
		attributeInts(s, "strides")
	v := s.Operands[0]
	for _, d := range paddedDims(r.dims[v]) {
		if starts[d] != 0 || limits[d] != v.Type.Dims[d] || strides[d] != 1 || !r.dims[s.Results[0]][d].IsPadded() {
			r.reject(s, 0, d, "slice", "a replica may have fewer rows than it reads",
				"slice along another dimension, or choose rows by their contents with graph.Where")
		}
	}
	r.rejectVaryingAttributes(s, "limit_indices")
}

func (r *rewriter) checkPad(s *ir.Statement) {
	low, high, between := attributeInts(s, "edge_padding_low"), attributeInts(s, "edge_padding_high"),
		attributeInts(s, "interior_padding")
	for _, v := range []*ir.Value{s.Operands[0], s.Results[0]} {
		for _, d := range paddedDims(r.dims[v]) {
			if low[d] != 0 || high[d] != 0 || between[d] != 0 {
				r.reject(s, 0, d, "pad", "the added elements would follow the padding",
					"pad along another dimension, or before batching")
			}
		}
	}
	r.rejectVaryingAttributes(s)
}

// requireFullDims rejects an op, such as a dynamic slice, unless slice and operand have the same
// size in each padded dimension.
func (r *rewriter) requireFullDims(s *ir.Statement, operand, slice *ir.Value, reason, hint string) {
	a, b := r.dims[operand], r.dims[slice]
	for d := range a {
		if a[d] != b[d] || a[d].IsPadded() && operand.Type.Dims[d] != slice.Type.Dims[d] {
			r.reject(s, 0, d, s.OpName(), reason, hint)
		}
	}
}

func (r *rewriter) checkDynamicSlice(s *ir.Statement) {
	r.rejectVaryingAttributes(s, "slice_sizes")
	r.requireFullDims(s, s.Operands[0], s.Results[0], "it may take padding", "slice along another dimension")
}

func (r *rewriter) checkDynamicUpdateSlice(s *ir.Statement) {
	r.requireFullDims(s, s.Operands[0], s.Operands[1], "it would write padding, or into it",
		"update along another dimension")
}
