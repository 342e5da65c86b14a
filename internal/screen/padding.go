package screen

import (
	"math"
	"strings"
)

// maxPadded bounds the elements of a padded tensor: 16 bytes is the largest element, and no address
// can count more bytes than math.MaxInt64.
const maxPadded = math.MaxInt64 / 16

// checkPadding looks at a pad or a reduce_window: compilers pad with what is positive first and
// crop afterwards, and what they make in between has to have a size.
func (f *checker) checkPadding(name string, op *Operation) error {
	if err := op.typed(); err != nil {
		return err
	}
	dims, _ := f.dims(op.InDims, op.Ins)
	attr := func(keys ...string) []int64 {
		for _, k := range keys {
			if list, ok := f.numbers(op, k); ok {
				return list
			}
		}
		return nil
	}
	operand := func(i int) []int64 {
		return f.constants[op.operand(i)]
	}
	var low, high, interior []int64
	switch name {
	case "pad":
		low, high, interior = attr("low", "edge_padding_low"), attr("high", "edge_padding_high"), attr("interior", "interior_padding")
	case "dynamic_pad":
		low, high, interior = operand(2), operand(3), operand(4)
	default: // reduce_window
		for i, v := range attr("padding") {
			if i%2 == 0 {
				low = append(low, v)
			} else {
				high = append(high, v)
			}
		}
		for _, v := range attr("base_dilations") {
			interior = append(interior, max(v, 1)-1)
		}
	}
	at := func(list []int64, i int) int64 {
		switch {
		case i < len(list):
			return max(list[i], 0)
		case len(list) == 1:
			return max(list[0], 0) // dense<1> is 1 for each dimension
		}
		return 0
	}
	total := int64(1)
	for i := range max(len(dims), len(low), len(high), len(interior)) {
		n := int64(1)
		if i < len(dims) {
			n = max(dims[i], 1)
		}
		l, h, in := at(low, i), at(high, i), at(interior, i)
		size, fits := n, in == 0 || n-1 <= maxPadded/in
		for _, more := range []int64{l, h, in * (n - 1)} {
			if !fits || more > maxPadded-min(size, maxPadded) {
				fits = false
				break
			}
			size += more
		}
		if !fits || total > maxPadded/max(size, 1) {
			return codeError("it pads dimension %d of %s by %d and %d with %d between elements, which is more than memory can address and aborts the compiler: take the crop before the padding", i, strings.TrimSpace(op.Ins[0]), l, h, in)
		}
		total *= max(size, 1)
	}
	return nil
}
