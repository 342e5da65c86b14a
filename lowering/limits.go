package lowering

import (
	"fmt"
	"math"

	"github.com/gomlx/compute/dtypes"

	"github.com/tpustrategy/tpustrategy/lowering/ir"
)

const (
	// maxNesting bounds nested brackets in the text. Compilers recurse over them.
	maxNesting = 256
	// maxDilation bounds the padding that a convolution inserts between elements. Compilers count
	// the operations of a convolution element by element.
	maxDilation = 1 << 24
)

// limits finds the first statement of a program that would abort a compiler.
type limits struct {
	simple bool // the compiler aborts for Complex128
	err    error
}

func (l *limits) function(f *ir.Function) {
	for _, parameter := range f.Parameters {
		l.value("parameter "+parameter.Name, parameter.Value)
	}
	l.statements(f.Body, 8) // depth of a module, a function, a loop or branch, and a type list
}

func (l *limits) refuse(subject, reason, hint string) {
	if l.err == nil {
		l.err = fault(subject, reason, hint)
	}
}

func (l *limits) value(subject string, v *ir.Value) {
	switch {
	case !v.Type.IsAddressable():
		l.refuse(subject, fmt.Sprintf("%s has more elements than memory can address", v.Type), "split it, or use smaller dimensions")
	case l.simple && v.Type.DType == dtypes.Complex128:
		l.refuse(subject, fmt.Sprintf("%s, of complex numbers of 128 bits, would end the TPU compiler as it partitions the program", v.Type), "use Complex64")
	}
}

// statements checks statements at the given bracket depth.
func (l *limits) statements(list []*ir.Statement, depth int) {
	if depth > maxNesting {
		l.refuse("closures", fmt.Sprintf("they are nested so deep that brackets are more than %d deep, which would end the compiler's stack", maxNesting), "use functions")
	}
	for _, s := range list {
		if l.err != nil {
			return
		}
		for _, v := range s.Results {
			l.value(s.Op, v)
		}
		switch s.Op {
		case "stablehlo.constant":
			if value, ok := s.Attribute(ir.ValueKey).(*ir.Dense); ok && depth+1+value.Depth() > maxNesting {
				l.refuse(s.Op, fmt.Sprintf("a constant has %d dimensions, and brackets nest %d deep", value.Depth(), maxNesting), "reshape one of fewer dimensions")
			}
		case "stablehlo.pad":
			l.padding(s, ints(s, "edge_padding_low"), ints(s, "edge_padding_high"), ints(s, "interior_padding"))
		case "stablehlo.reduce_window":
			l.window(s)
		case "stablehlo.convolution":
			for _, n := range ints(s, "lhs_dilation") {
				if n > maxDilation {
					l.refuse(s.Op, fmt.Sprintf("it dilates its operand by %d, which takes the compiler for ever", n), fmt.Sprintf("dilate by %d at most", maxDilation))
				}
			}
		}
		for _, r := range s.Regions {
			for _, v := range r.Arguments {
				l.value(s.Op, v)
			}
			l.statements(r.Body, depth+2)
		}
	}
}

func ints(s *ir.Statement, key string) []int {
	list, _ := s.Attribute(key).(ir.Ints)
	return list
}

func (l *limits) window(s *ir.Statement) {
	var low, high, between []int
	pairs, _ := s.Attribute("padding").(ir.IntMatrix)
	for _, pair := range pairs {
		low, high = append(low, pair[0]), append(high, pair[1])
	}
	for _, n := range ints(s, "base_dilations") {
		between = append(between, n-1)
	}
	l.padding(s, low, high, between)
}

// padding checks the elements that are inserted before, after and between the elements of an
// operand. Compilers pad first and crop afterwards, so the intermediate shape must be addressable
// too.
func (l *limits) padding(s *ir.Statement, low, high, between []int) {
	at := func(list []int, axis int) int {
		if axis < len(list) {
			return max(list[axis], 0)
		}
		return 0
	}
	total := 1.0
	for axis, dim := range s.Operands[0].Type.Dims {
		before, after, gap := at(low, axis), at(high, axis), at(between, axis)
		total *= max(1, float64(dim)+float64(before)+float64(after)+float64(gap)*float64(dim-1))
		if total > math.MaxInt64/16 { // bytes of the largest element
			l.refuse(s.Op, fmt.Sprintf("it pads dimension %d of %s by %d and %d with %d between elements, which is more than memory can address and would end the compiler",
				axis, s.Operands[0].Type, before, after, gap), "crop before you pad")
			return
		}
	}
}
