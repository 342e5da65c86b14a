package screen

import "strings"

// maxDilation bounds what a convolution puts between elements: compilers that count the operations
// of one go from element to element.
const maxDilation = 1 << 24

// maxDimension bounds the numbers of dimensions: compilers make lists as long as the largest.
const maxDimension = 1000

// checkConvolution looks at the dimensions of a convolution, which the one form has as dim_numbers
// = [b, 0, f]x[0, i, o]->[b, 0, f] and the other as dimension_numbers = #stablehlo.conv<...>, and
// at its dilations.
func (f *checker) checkConvolution(op *Operation) error {
	attrs := op.Attrs
	if window, ok := op.has("window"); ok {
		attrs = append(attrs[:len(attrs):len(attrs)], dictionaryOf(window)...)
	}
	for _, a := range attrs {
		value := f.resolve(a.Value)
		switch a.Key {
		case "dim_numbers", "dimension_numbers":
			for _, part := range strings.Split(value, "->") { // an arrow is no bracket
				for _, n := range integersIn(part) {
					if n >= maxDimension {
						return codeError("a convolution has dimension %d, which ends the compiler's memory: dimensions are numbered from 0", n)
					}
				}
			}
		case "lhs_dilate", "lhs_dilation":
			for _, n := range f.numbersOf(a) {
				if n > maxDilation {
					return codeError("a convolution dilates its operand by %d, which takes the compiler for ever: %d is the most", n, maxDilation)
				}
			}
		}
	}
	return nil
}
