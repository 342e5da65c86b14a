package ragged

import (
	"slices"

	"github.com/tpustrategy/tpustrategy/lowering/ir"
)

// elementwise ops, and ops that only move elements or change the layout, preserve the invariant.
var elementwise = map[string]bool{
	"abs": true, "add": true, "and": true, "atan2": true, "cbrt": true, "ceil": true, "clamp": true, "compare": true,
	"complex": true, "convert": true, "cosine": true, "count_leading_zeros": true, "divide": true, "erf": true,
	"exponential": true, "exponential_minus_one": true, "floor": true, "imag": true, "is_finite": true, "log": true,
	"log_plus_one": true, "logistic": true, "maximum": true, "minimum": true, "multiply": true, "negate": true, "not": true,
	"optimization_barrier": true, "or": true, "popcnt": true, "power": true, "real": true, "remainder": true,
	"round_nearest_afz": true, "round_nearest_even": true, "rsqrt": true, "select": true, "shift_left": true,
	"shift_right_arithmetic": true, "shift_right_logical": true, "sign": true, "sine": true, "sqrt": true, "subtract": true,
	"tan": true, "tanh": true, "xor": true, "transpose": true, "broadcast_in_dim": true, "iota": true, "return": true,
	"reduce_precision": true, "batch_norm_inference": true,
	// Their bodies are rewritten separately. The carried values keep their shapes.
	"while": true, "if": true, "case": true,
	// Any random bits are valid.
	"rng_bit_generator": true,
}

// rule makes a statement with padded dimensions preserve the invariant. It changes the operands of
// copied, which is written. s is the original statement.
func (r *rewriter) rule(s, copied *ir.Statement) {
	if s.Mark != nil {
		if op := r.marker(s.Mark); op != "" {
			r.refuse(s, 0, -1, op, "the replicas' real sizes differ",
				"reduce the padded dimension first, or return the value and reduce or gather it outside the step")
		}
		return
	}
	name := s.Name()
	if elementwise[name] {
		r.sameAttributes(s)
		return
	}
	switch name {
	case "reshape":
		r.reshape(s)
	case "reduce":
		r.reduce(s, copied)
	case "dot_general":
		r.dot(s, copied)
	case "convolution":
		r.convolution(s, copied)
	case "reduce_window":
		r.reduceWindow(s, copied)
	case "select_and_scatter":
		r.selectAndScatter(s)
	case "slice":
		r.slice(s)
	case "pad":
		r.pad(s)
	case "concatenate":
		r.along(s, "joining rows of which the last are padding has padding in the middle",
			"concatenate along another dimension, or give the parts as results", ints(s, "dimension"))
	case "reverse":
		r.along(s, "the padding would come first", "reverse before batching, or along another dimension", ints(s, "dimensions"))
	case "sort":
		r.along(s, "padding would be sorted among the rows", "sort along another dimension, or give the rows as a result and sort them there",
			ints(s, "dimension"))
	case "dynamic_slice":
		r.dynamicSlice(s)
	case "dynamic_update_slice":
		r.dynamicUpdateSlice(s)
	case "gather":
		r.gather(s, copied)
	case "scatter":
		r.scatter(s, copied)
	case "bitcast_convert":
		if v := s.Operands[0]; v.Type.Rank() != s.Results[0].Type.Rank() {
			r.along(s, "its bytes are numbers of other sizes", "", []int{min(v.Type.Rank(), s.Results[0].Type.Rank())})
		}
	case "fft":
		rank, n := s.Operands[0].Type.Rank(), len(ints(s, "fft_length"))
		r.along(s, "each output is of all rows", "", indexes(rank-n, rank))
	default:
		r.refuse(s, 0, -1, name, "it is not known how to leave padding out of it",
			"do it outside the step, or mask the padding in the step (FunctionOptions.Padding: KeepPadding)")
	}
}

// refuse makes [Plan.Apply] return an error about a statement's operand and its padded dimension
// dim. dim -1 is the first padded dimension.
func (r *rewriter) refuse(s *ir.Statement, operand, dim int, op, reason, hint string) {
	e := &Error{Op: op, Dim: dim, Reason: reason, Hint: hint}
	v := s.Results[0]
	if operand < len(s.Operands) {
		v = s.Operands[operand]
	}
	e.Shape = slices.Clone(v.Type.Dims)
	if all := padded(r.dims[v]); dim < 0 && len(all) > 0 {
		e.Dim = all[0]
	}
	panic(e)
}

// sameAttributes rejects a statement with attributes that depend on the sizes, except for the
// attributes in but.
func (r *rewriter) sameAttributes(s *ir.Statement, but ...string) {
	for _, key := range r.varying[s] {
		if !slices.Contains(but, key) {
			r.refuse(s, 0, -1, s.Name(), "its "+key+" changes with a padded size", "")
		}
	}
}

// along rejects an op over padded dimensions of an operand that are in list.
func (r *rewriter) along(s *ir.Statement, reason, hint string, list []int) {
	for i, v := range s.Operands {
		if at := among(r.dims[v], list); len(at) > 0 {
			r.refuse(s, i, at[0], s.Name(), reason, hint)
		}
	}
}

func indexes(from, to int) (all []int) {
	for i := max(from, 0); i < to; i++ {
		all = append(all, i)
	}
	return all
}

// reshape preserves the invariant if a padded dimension is the leading one of the dimensions that
// it is joined with or split into: the real rows then stay first.
func (r *rewriter) reshape(s *ir.Statement) {
	in, out := s.Operands[0], s.Results[0]
	from, to := r.shapes[in], r.shapes[out]
	fromDims, toDims := r.dims[in], r.dims[out]
	n := len(from)
	if slices.Contains(from[0], 0) {
		return
	}
	for i, j := 0, 0; i < len(from[0]) || j < len(to[0]); {
		a, b := ones(n), ones(n)
		firstIn, firstOut := i, j
		take := func(product []int, of shapes, at *int) {
			for k := range product {
				product[k] *= of[k][*at]
			}
			*at++
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
		if !leads(fromDims, from[0], firstIn, i) || !leads(toDims, to[0], firstOut, j) {
			r.refuse(s, 0, -1, "reshape", "its padded dimension is mixed with one before it",
				"move the padded dimension to the front of those that are joined (graph.Transpose)")
		}
	}
}

func ones(n int) []int {
	all := make([]int, n)
	for i := range all {
		all[i] = 1
	}
	return all
}

// leads reports whether at most one of dimensions from to to is padded, with only dimensions of
// size 1 before it.
func leads(dims []Dim, sizes []int, from, to int) bool {
	first := true
	for d := from; d < to; d++ {
		if dims[d].Padded() && !first {
			return false
		}
		if dims[d].Padded() || sizes[d] != 1 {
			first = false
		}
	}
	return true
}

// slice rejects a slice that does not cover a padded dimension.
func (r *rewriter) slice(s *ir.Statement) {
	starts, limits, strides := ints(s, "start_indices"), ints(s, "limit_indices"), ints(s, "strides")
	v := s.Operands[0]
	for _, d := range padded(r.dims[v]) {
		if starts[d] != 0 || limits[d] != v.Type.Dims[d] || strides[d] != 1 || !r.dims[s.Results[0]][d].Padded() {
			r.refuse(s, 0, d, "slice", "a replica may have fewer rows than it takes",
				"slice along another dimension, or choose rows by their contents with graph.Where")
		}
	}
	r.sameAttributes(s, "limit_indices")
}

func (r *rewriter) pad(s *ir.Statement) {
	low, high, between := ints(s, "edge_padding_low"), ints(s, "edge_padding_high"), ints(s, "interior_padding")
	for _, v := range []*ir.Value{s.Operands[0], s.Results[0]} {
		for _, d := range padded(r.dims[v]) {
			if low[d] != 0 || high[d] != 0 || between[d] != 0 {
				r.refuse(s, 0, d, "pad", "what is added would follow the padding", "pad along another dimension, or before batching")
			}
		}
	}
	r.sameAttributes(s)
}

// wholeDims rejects a statement unless part covers each padded dimension of whole completely, so
// that the start index there is 0.
func (r *rewriter) wholeDims(s *ir.Statement, whole, part *ir.Value, reason, hint string) {
	a, b := r.dims[whole], r.dims[part]
	for d := range a {
		if a[d] != b[d] || a[d].Padded() && whole.Type.Dims[d] != part.Type.Dims[d] {
			r.refuse(s, 0, d, s.Name(), reason, hint)
		}
	}
}

func (r *rewriter) dynamicSlice(s *ir.Statement) {
	r.sameAttributes(s, "slice_sizes")
	r.wholeDims(s, s.Operands[0], s.Results[0], "it may take padding", "slice along another dimension")
}

func (r *rewriter) dynamicUpdateSlice(s *ir.Statement) {
	r.wholeDims(s, s.Operands[0], s.Operands[1], "it would write padding, or into it", "update along another dimension")
}
