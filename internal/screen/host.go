package screen

import (
	"slices"
	"strings"
)

// What compilers for the host's processor, and what they make, do not survive. Others take it, or
// answer with an error.

// checkSort looks at the comparator of a sort: sorts that are not stable run past the end of a
// tensor if equal elements are before each other.
func (f *checker) checkSort(op *Operation) error {
	if len(op.Regions) != 1 || strings.HasPrefix(f.resolve(op.get("is_stable")), "true") {
		return nil
	}
	// A comparator of several operations is not followed.
	ops := op.Regions[0].Ops
	if len(ops) == 0 || len(ops) > 2 || len(ops) == 2 && len(ops[1].Results) > 0 {
		return nil
	}
	by := ""
	switch _, short := ops[0].dialect(); short {
	case "compare":
		by = strings.Join(ops[0].Words, " ") + " " + f.resolve(ops[0].get("comparison_direction"))
		by = strings.TrimSpace(strings.TrimSuffix(strings.ReplaceAll(by, "#stablehlo<comparison_direction ", ""), ">"))
		by, _, _ = strings.Cut(by, " ")
		if by != "EQ" && by != "NE" && by != "LE" {
			return nil
		}
	case "constant":
		if by = "true"; !f.holds(ops[0]) {
			return nil
		}
	default:
		return nil
	}
	return codeError("a sort compares by %s, which holds for equal elements or is no order, and a sort that is not stable then runs past the end of the tensor: compare by LT or GT, or set is_stable", by)
}

// holds tells whether a constant is true.
func (f *checker) holds(op *Operation) bool {
	for _, a := range op.Attrs {
		if a.Key == "value" && a.Numbers != nil {
			return slices.Equal(a.Numbers, []int64{1})
		}
	}
	return strings.HasPrefix(f.resolve(op.get("value")), "dense<true>")
}

// checkFFT looks at the length of a transform, which has to be that of the axes.
func (f *checker) checkFFT(op *Operation) error {
	if len(op.Ins) != 1 || len(op.Outs) != 1 {
		return nil
	}
	kind, key, axes := "type", "length", op.Ins
	if _, generic := op.has("fft_length"); generic {
		kind, key = "fft_type", "fft_length"
	}
	known := op.InDims
	if strings.Contains(f.resolve(op.get(kind)), "IRFFT") {
		known, axes = op.OutDims, op.Outs
	}
	dims, ok := f.dims(known, axes)
	n, _ := f.numbers(op, key)
	if !ok || slices.Contains(dims, -1) || len(n) > len(dims) || slices.Equal(dims[len(dims)-len(n):], n) {
		return nil
	}
	return codeError("an fft of length %v over %s, which ends the process: the length is that of the last axes; pad or slice before", n, axes[0])
}

// checkCompare looks at comparisons of integers of a dynamic size: compilers make a constant of x
// == x, of a size that they do not know.
func (f *checker) checkCompare(op *Operation) error {
	for _, t := range op.Ins {
		if dims, ok := tensorDims(t); ok && isInteger(t) && slices.Contains(dims, -1) {
			return codeError("it compares %s, of a dynamic size, which ends the process if both sides are one: write the size", t)
		}
	}
	return nil
}
