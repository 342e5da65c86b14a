package hlo

import (
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// ModelFLOPs returns the number of operations of the matrix products and convolutions in a
// StableHLO text. A multiplication and an addition count as two operations. Products in a loop
// count once per iteration. Products whose result is not used do not count. unknown is the number
// of loops whose number of iterations is unknown, so that they count as one iteration.
func ModelFLOPs(text []byte) (flops float64, unknown int) {
	program := parseRegions(text)
	c := &flopCounter{functions: map[string]*countedFunction{}, unread: unreadOperations(program)}
	rest := &countedFunction{}
	c.all = append(c.all, rest)
	c.addRegion(rest, program, 1, &constants{})
	for _, f := range c.all {
		flops += f.flops * f.runCount(map[*countedFunction]bool{})
	}
	return flops, c.unknown
}

// flopCounter counts the FLOPs of each function of a StableHLO text, for one run of the function.
type flopCounter struct {
	all       []*countedFunction
	functions map[string]*countedFunction
	unread    map[*operation]bool
	unknown   int // loops with an unknown number of iterations
}

// countedFunction contains the FLOPs of one run of a function or of the top level of the text, and
// the places that call the function.
type countedFunction struct {
	flops float64
	calls []countedCall
	times float64 // number of runs; 0 if not computed yet
}

// countedCall is a call of a function. Each run of the calling function, from, executes the call
// the given number of times.
type countedCall struct {
	from  *countedFunction
	times float64
}

// function returns the function with the given name. If the function is not defined yet, it is
// added to the counter first.
func (c *flopCounter) function(name string) *countedFunction {
	f := c.functions[name]
	if f == nil {
		f = &countedFunction{}
		c.functions[name], c.all = f, append(c.all, f)
	}
	return f
}

// symbol matches the name of a function or of the callee of a call, which the generic form has in
// an attribute.
var symbol = regexp.MustCompile(`(?:@|sym_name = )"?([\w$.-]+)`)

func symbolOf(op *operation) string {
	if m := symbol.FindStringSubmatch(op.text); m != nil {
		return m[1]
	}
	return ""
}

// runCount returns how often the program runs a function. A function that is not called runs once.
// callees are the functions for which the number is being computed; they are needed to detect
// recursion.
func (f *countedFunction) runCount(callees map[*countedFunction]bool) float64 {
	if len(f.calls) == 0 || callees[f] {
		return 1
	}
	if f.times > 0 {
		return f.times
	}
	callees[f] = true
	defer delete(callees, f)
	total := 0.0
	for _, call := range f.calls {
		total += call.from.runCount(callees) * call.times
	}
	f.times = total
	return total
}

// addRegion adds the operations of a region to function f. Each run of f runs the region the given
// number of times. known contains the constants that are visible in the region.
func (c *flopCounter) addRegion(f *countedFunction, region *region, times float64, known *constants) {
	for _, op := range region.ops {
		if c.unread[op] {
			continue
		}
		switch op.name {
		case "func.func":
			c.addRegions(c.function(symbolOf(op)), op.regions, 1, &constants{})
			continue
		case "func.call":
			callee := c.function(symbolOf(op))
			callee.calls = append(callee.calls, countedCall{f, times})
		case "stablehlo.constant":
			known.add(op)
		case "stablehlo.while":
			if len(op.regions) != 2 { // truncated
				break
			}
			iterations, ok := newLoop(op, known).iterations()
			if !ok {
				iterations = 1
				c.unknown++
			}
			c.addRegion(f, op.regions[0], times, known.nested())
			c.addRegion(f, op.regions[1], times*float64(iterations), known.nested())
			continue
		default:
			f.flops += times * productFLOPs(op)
		}
		c.addRegions(f, op.regions, times, known)
	}
}

func (c *flopCounter) addRegions(f *countedFunction, regions []*region, times float64, known *constants) {
	for _, region := range regions {
		c.addRegion(f, region, times, known.nested())
	}
}

var (
	// contracted matches the contracted dimensions of a product, in either form.
	contracted = regexp.MustCompile(`(?:lhs_contracting_dimensions|contracting_dims)\s*=\s*\[([0-9, ]*)\]`)
	// kernelRoles matches the roles of a kernel's dimensions, between the roles of the input and
	// the output.
	kernelRoles = regexp.MustCompile(`x\s*\[([0-9a-z, ]*)\]\s*->`)
	// signature matches an operation's type: two operands and a result.
	signature = regexp.MustCompile(`: \(tensor<([^>]*)>, tensor<([^>]*)>\) -> tensor<([^>]*)>`)
)

// productFLOPs returns the number of operations of a matrix product or a convolution, or 0 for
// other instructions.
func productFLOPs(op *operation) float64 {
	switch op.name {
	case "stablehlo.dot", "stablehlo.dot_general", "stablehlo.convolution":
	default:
		return 0
	}
	types := signature.FindStringSubmatch(op.text)
	if types == nil {
		return 0
	}
	left, right, all := tensorDims(types[1]), tensorDims(types[2]), 2*elementCount(tensorDims(types[3]))
	switch op.name {
	case "stablehlo.dot":
		if len(left) == 0 {
			return 0
		}
		return all * float64(left[len(left)-1])
	case "stablehlo.dot_general":
		if m := contracted.FindStringSubmatch(op.text); m != nil {
			for _, dim := range parseInts(m[1]) {
				if dim < len(left) {
					all *= float64(left[dim])
				}
			}
		}
		return all
	}
	roles := kernelRoles.FindStringSubmatch(op.text)
	if roles == nil {
		return 0
	}
	all *= elementCount(right)
	for i, role := range strings.Split(roles[1], ",") {
		if strings.TrimSpace(role) == "o" && i < len(right) && right[i] > 0 {
			all /= float64(right[i])
		}
	}
	return all
}

func tensorDims(rest string) []int {
	var dims []int
	for {
		dim, after, ok := strings.Cut(rest, "x")
		n, err := strconv.Atoi(dim)
		if !ok || err != nil || n < 0 {
			return dims
		}
		dims, rest = append(dims, n), after
	}
}

func elementCount(dims []int) float64 {
	n := 1.0
	for _, d := range dims {
		n *= float64(d)
	}
	return n
}

func parseInts(list string) []int {
	var out []int
	for _, text := range strings.Split(list, ",") {
		if n, err := strconv.Atoi(strings.TrimSpace(text)); err == nil && n >= 0 {
			out = append(out, n)
		}
	}
	return out
}

// Automatic differentiation leaves operations in the text whose results are not read, such as the
// gradient of a product in another dtype. Compilers remove them, so they are not work of the model.

// sideEffects lists operations that run whether or not their results are read.
var sideEffects = []string{"stablehlo.custom_call", "stablehlo.while", "stablehlo.case", "stablehlo.if",
	"stablehlo.send", "stablehlo.recv",
	"stablehlo.infeed", "stablehlo.outfeed"}

// unreadOperations returns the operations whose results are not used by any other operation, for
// all functions in a region.
func unreadOperations(top *region) map[*operation]bool {
	found := map[*operation]bool{}
	for _, op := range top.ops {
		for _, region := range op.regions {
			if op.name == "func.func" {
				region.addUnread(map[string]bool{}, found)
				continue
			}
			for inner := range unreadOperations(region) {
				found[inner] = true
			}
		}
	}
	return found
}

// addUnread adds the operations of a region whose results are not used to found. read contains the
// names that later operations use; addUnread extends it by the names that the region uses. If the
// region has no return operation, it is incomplete, and all its results count as used.
func (r *region) addUnread(read map[string]bool, found map[*operation]bool) {
	complete := len(r.ops) > 0 && strings.HasSuffix(r.ops[len(r.ops)-1].name, "return")
	for _, op := range slices.Backward(r.ops) {
		removable := complete && len(op.results) > 0 && strings.HasPrefix(op.name, "stablehlo.") &&
			!slices.Contains(sideEffects, op.name)
		if removable && !slices.ContainsFunc(op.results, func(name string) bool { return read[name] }) {
			found[op] = true
			continue
		}
		for _, region := range op.regions {
			region.addUnread(read, found)
		}
		for _, name := range op.operands {
			name, _, _ = strings.Cut(name, "#")
			read[name] = true
		}
	}
}
