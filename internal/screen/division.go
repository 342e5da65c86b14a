package screen

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
)

// Compilers for the host fold operations on constants before anything else, and divide integers
// with the processor's instruction, which ends the process where a divisor is
// 0. A division of two literals with a 0 is refused. Where both sides may become
// constants by folding, as x - x does, they are hidden behind an optimization barrier: folding does
// not see through it, and what is made of the division later gives -1, as a division by 0 gives
// when a program runs.

// fold notes whether a compiler may come to know an operation's results.
func (f *checker) fold(op *Operation, short string) {
	known := false
	switch short {
	case "custom_call", "call", "composite", "optimization_barrier", "rng", "rng_bit_generator", "rng_uniform",
		"all_reduce", "all_gather", "all_to_all", "reduce_scatter", "collective_permute", "collective_broadcast",
		"replica_id", "partition_id", "recv", "send", "create_token", "after_all":
		// What it gives is there when the program runs.
	case "subtract", "broadcast_subtract", "xor", "compare", "broadcast_compare", "divide", "remainder", "broadcast_divide",
		"broadcast_remainder", "if", "case", "constant", "iota", "get_dimension_size", "constant_like":
		known = true // of whatever operands: x - x is 0
	case "add", "broadcast_add", "convert", "reshape", "broadcast_in_dim", "broadcast", "transpose", "reverse", "slice", "dynamic_slice", "gather",
		"dynamic_reshape", "dynamic_broadcast_in_dim", "bitcast_convert", "negate", "abs", "not", "sign":
		known = f.folds[base(op.operand(0))]
		if short == "add" {
			known = known && f.folds[base(op.operand(1))]
		}
	default:
		known = len(op.Operands) == 0
		for _, o := range op.Operands {
			known = known || f.folds[base(o)]
		}
	}
	known = known || f.ofNothing(op)
	for _, r := range op.Results {
		if known {
			f.folds[r] = true
		} else {
			delete(f.folds, r)
		}
	}
}

// ofNothing tells whether an operand has no elements: what comes of it is known, whatever it is, as
// a sum of nothing is 0.
func (f *checker) ofNothing(op *Operation) bool {
	for _, t := range op.Ins {
		if dims, ok := tensorDims(t); ok && slices.Contains(dims, 0) {
			return true
		}
	}
	return false
}

// base is %x for %x#1.
func base(operand string) string {
	name, _, _ := strings.Cut(operand, "#")
	return name
}

// enter notes what arguments of a region a compiler may come to know: it takes what a loop does not
// change from outside.
func (f *checker) enter(op *Operation, _ int, r *Region) {
	_, short := op.dialect()
	for i, a := range r.Args {
		if short == "while" && f.folds[base(op.operand(i))] {
			f.folds[a] = true
		} else {
			delete(f.folds, a)
		}
	}
}

// checkDivision refuses a division of a literal by one with a 0, and hides others that a compiler
// might do itself.
func (f *checker) checkDivision(op *Operation) error {
	if len(op.Operands) != 2 || len(op.Ins) == 0 || !isInteger(op.Ins[0]) {
		return nil
	}
	lhs, rhs := op.Operands[0], op.Operands[1]
	by, known := f.constants[rhs]
	if _, both := f.constants[lhs]; both && slices.Contains(by, 0) {
		return codeError("%s divides the constant %s by the constant %s, which has a 0, and the compiler that does it for you ends the process: leave it out, or pass the divisor as an argument", op.Name, lhs, rhs)
	}
	if !f.folds[base(lhs)] || !f.folds[base(rhs)] || known && len(by) > 0 && !slices.Contains(by, 0) {
		return nil
	}
	if f.code == "" || op.operandsEnd == 0 {
		return nil
	}
	types := []string{op.Ins[0], op.Ins[len(op.Ins)-1]}
	if f.hidden == "" {
		for f.hidden = "%screened_"; strings.Contains(f.code, f.hidden); {
			f.hidden += "_"
		}
	}
	hidden := fmt.Sprintf("%s%d", f.hidden, len(f.edits))
	f.edits = append(f.edits,
		edit{op.at, op.at, fmt.Sprintf("%s:2 = \"stablehlo.optimization_barrier\"(%s, %s) : (%s, %s) -> (%[4]s, %[5]s)\n", hidden, lhs, rhs, types[0], types[1])},
		edit{op.operandsAt, op.operandsEnd, hidden + "#0, " + hidden + "#1"})
	return nil
}

// edit is a change of a text, between two places.
type edit struct {
	from, to int
	text     string
}

// applied is the code with its edits, which do not overlap.
func applied(code []byte, edits []edit) []byte {
	if len(edits) == 0 {
		return code
	}
	slices.SortStableFunc(edits, func(a, b edit) int { return a.from - b.from })
	var out bytes.Buffer
	at := 0
	for _, e := range edits {
		out.Write(code[at:e.from])
		out.WriteString(e.text)
		at = e.to
	}
	out.Write(code[at:])
	return out.Bytes()
}
