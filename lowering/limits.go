package lowering

import (
	"fmt"
	"math"

	"github.com/gomlx/compute/dtypes"

	"github.com/tpustrategy/tpustrategy/lowering/ir"
)

const (
	// maxNesting is the maximum depth of nested brackets in the text. Compilers recurse over
	// brackets.
	maxNesting = 256
	// maxDilation is the maximum dilation of a convolution. Compilers count its operations one by
	// one.
	maxDilation = 1 << 24
)

// limitChecker finds the first op of a program that would abort a compiler.
type limitChecker struct {
	rejectComplex128 bool // the compiler aborts for Complex128
	err              error
}

func (l *limitChecker) checkFunction(f *ir.Function) {
	for _, parameter := range f.Parameters {
		l.checkValue("parameter "+parameter.Name, parameter.Value)
	}
	l.checkStatements(f.Body, 8) // depth of a module, a function, a loop or branch, and a type list
}

func (l *limitChecker) fail(subject, reason, hint string) {
	if l.err == nil {
		l.err = newFault(subject, reason, hint)
	}
}

func (l *limitChecker) checkValue(subject string, v *ir.Value) {
	switch {
	case !v.Type.IsAddressable():
		l.fail(subject, fmt.Sprintf("%s has more elements than memory can address", v.Type),
			"split it, or use smaller dimensions")
	case l.rejectComplex128 && v.Type.DType == dtypes.Complex128:
		l.fail(subject,
			fmt.Sprintf("%s, of complex numbers of 128 bits, would end the TPU compiler as it partitions the program", v.Type),
			"use Complex64")
	}
}

func (l *limitChecker) checkStatements(list []*ir.Statement, depth int) {
	if depth > maxNesting {
		l.fail("closures",
			fmt.Sprintf("they are nested so deep that brackets are more than %d deep, which would end the compiler's stack",
				maxNesting), "use functions")
	}
	for _, s := range list {
		if l.err != nil {
			return
		}
		for _, v := range s.Results {
			l.checkValue(s.Op, v)
		}
		switch s.Op {
		case "stablehlo.constant":
			if value, ok := s.Attribute(ir.ValueKey).(*ir.Dense); ok && depth+1+value.Depth() > maxNesting {
				l.fail(s.Op, fmt.Sprintf("a constant has %d dimensions, and brackets nest %d deep", value.Depth(), maxNesting),
					"reshape one of fewer dimensions")
			}
		case "stablehlo.pad":
			l.checkPadding(s, attributeInts(s, "edge_padding_low"), attributeInts(s, "edge_padding_high"),
				attributeInts(s, "interior_padding"))
		case "stablehlo.reduce_window":
			l.checkWindow(s)
		case "stablehlo.convolution":
			for _, n := range attributeInts(s, "lhs_dilation") {
				if n > maxDilation {
					l.fail(s.Op, fmt.Sprintf("it dilates its operand by %d, which takes the compiler for ever", n),
						fmt.Sprintf("dilate by %d at most", maxDilation))
				}
			}
		}
		for _, r := range s.Regions {
			for _, v := range r.Arguments {
				l.checkValue(s.Op, v)
			}
			l.checkStatements(r.Body, depth+2)
		}
	}
}

func attributeInts(s *ir.Statement, key string) []int {
	list, _ := s.Attribute(key).(ir.Ints)
	return list
}

func (l *limitChecker) checkWindow(s *ir.Statement) {
	var low, high, between []int
	pairs, _ := s.Attribute("padding").(ir.IntMatrix)
	for _, pair := range pairs {
		low, high = append(low, pair[0]), append(high, pair[1])
	}
	for _, n := range attributeInts(s, "base_dilations") {
		between = append(between, n-1)
	}
	l.checkPadding(s, low, high, between)
}

// checkPadding checks the size of an operand that is padded at its ends and between its elements.
// Compilers crop the operand after padding, so the intermediate tensor must be addressable too.
func (l *limitChecker) checkPadding(s *ir.Statement, low, high, between []int) {
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
			l.fail(s.Op, fmt.Sprintf("it pads dimension %d of %s by %d and %d with %d between elements, which is more than "+
				"memory can address and would end the compiler",
				axis, s.Operands[0].Type, before, after, gap), "crop before you pad")
			return
		}
	}
}
