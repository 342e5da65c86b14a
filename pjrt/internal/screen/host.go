package screen

import (
	"regexp"
	"slices"
	"strings"
)

// What compilers for the host's processor, and what they make, do not survive. Others
// take it, or answer with an error.

var (
	assignments  = regexp.MustCompile(`%[\w$.-]+(?::[0-9]+)?\s*=`)
	direction    = regexp.MustCompile(`\bcompare"?\s+(EQ|NE|LE)\b|comparison_direction\s+(EQ|NE|LE)\s*>`)
	constantTrue = regexp.MustCompile(`constant[^:]*dense<true>`)
	integerType  = regexp.MustCompile(`^\s*:\s*(?:!|tensor<(?:[0-9?]+x)*u?i[0-9])`) // an alias may be one
)

// checkSort looks at the comparator of a sort: sorts that are not stable run past the
// end of a tensor if equal elements are before each other.
func checkSort(op *operation) error {
	if len(op.regions) != 1 || strings.HasPrefix(op.attrs["is_stable"], "true") {
		return nil
	}
	comparator := op.regions[0]
	if len(assignments.FindAllStringIndex(comparator, -1)) != 1 {
		return nil // how several operations compare is not followed
	}
	by := "true"
	if m := direction.FindStringSubmatch(comparator); m != nil {
		by = m[1] + m[2]
	} else if !constantTrue.MatchString(comparator) {
		return nil
	}
	return codeError("a sort compares by %s, which holds for equal elements or is no order, and a sort that is not stable then runs past the end of the tensor: compare by LT or GT, or set is_stable", by)
}

// checkFFT looks at the length of a transform, which has to be that of the axes.
func checkFFT(op *operation) error {
	if len(op.ins) != 1 || len(op.outs) != 1 {
		return nil
	}
	kind, length, axes := op.attrs["type"], op.attrs["length"], op.ins[0]
	if generic, ok := op.attrs["fft_length"]; ok {
		kind, length = op.attrs["fft_type"], generic
	}
	if strings.Contains(kind, "IRFFT") {
		axes = op.outs[0]
	}
	dims, ok := tensorDims(axes)
	n := integersIn(length)
	if !ok || slices.Contains(dims, -1) || len(n) > len(dims) || slices.Equal(dims[len(dims)-len(n):], n) {
		return nil
	}
	return codeError("an fft of length %v over %s, which ends the process: the length is that of the last axes; pad or slice before", n, axes)
}

// checkDivision looks at a division of constants, which compilers do themselves.
func (f *moduleFacts) checkDivision(name string, op *operation) error {
	if len(op.operands) != 2 {
		return nil
	}
	if _, known := f.constants[op.operands[0]]; known && slices.Contains(f.constants[op.operands[1]], 0) {
		return codeError("%s divides the constant %s by the constant %s, which has a 0, and the compiler that does it for you ends the process: leave it out, or pass the divisor as an argument", name, op.operands[0], op.operands[1])
	}
	return nil
}
