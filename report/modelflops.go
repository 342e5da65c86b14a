package report

import (
	"regexp"
	"strconv"
	"strings"
)

// modelFLOPs counts the operations of the matrix products and convolutions of a StableHLO text, a
// multiplication and an addition as two, as often as they run. It leaves out products that nothing
// reads. unknown is the number of loops whose number of rounds is not known, which count as one.
func modelFLOPs(text []byte) (flops float64, unknown int) {
	program := readRegions(text)
	c := &stepCounter{functions: map[string]*countedFunction{}, unread: unread(program)}
	rest := &countedFunction{}
	c.all = append(c.all, rest)
	c.count(rest, program, 1, &constants{})
	for _, f := range c.all {
		flops += f.flops * f.runs(map[*countedFunction]bool{})
	}
	return flops, c.unknown
}

// stepCounter counts a text's functions, each as if it ran once.
type stepCounter struct {
	all       []*countedFunction
	functions map[string]*countedFunction
	unread    map[*operation]bool
	unknown   int // loops whose rounds are not known
}

// countedFunction is a function, or what stands outside of all: its operations in one run, and the
// calls to it.
type countedFunction struct {
	flops float64
	calls []countedCall
	times float64 // how often it runs; 0 if not computed yet
}

// countedCall is a call in a function, and how often it happens in one run of that.
type countedCall struct {
	from  *countedFunction
	times float64
}

// function returns the function of a name, which calls may name before it is read.
func (c *stepCounter) function(name string) *countedFunction {
	f := c.functions[name]
	if f == nil {
		f = &countedFunction{}
		c.functions[name], c.all = f, append(c.all, f)
	}
	return f
}

// symbol is the name of a function or of what a call calls, which the generic form has in an
// attribute.
var symbol = regexp.MustCompile(`(?:@|sym_name = )"?([\w$.-]+)`)

func symbolOf(op *operation) string {
	if m := symbol.FindStringSubmatch(op.text); m != nil {
		return m[1]
	}
	return ""
}

// runs is how often a function runs: once if nobody calls it.
func (f *countedFunction) runs(under map[*countedFunction]bool) float64 {
	if len(f.calls) == 0 || under[f] {
		return 1
	}
	if f.times > 0 {
		return f.times
	}
	under[f] = true
	defer delete(under, f)
	total := 0.0
	for _, call := range f.calls {
		total += call.from.runs(under) * call.times
	}
	f.times = total
	return total
}

// count adds to f what a region does that runs so many times in one run of f. known are the
// constants that the region's operations see.
func (c *stepCounter) count(f *countedFunction, region *region, times float64, known *constants) {
	for _, op := range region.ops {
		if c.unread[op] {
			continue
		}
		switch op.name {
		case "func.func":
			c.countAll(c.function(symbolOf(op)), op.regions, 1, &constants{})
			continue
		case "func.call":
			callee := c.function(symbolOf(op))
			callee.calls = append(callee.calls, countedCall{f, times})
		case "stablehlo.constant":
			known.add(op)
		case "stablehlo.while":
			if len(op.regions) != 2 { // it is cut
				break
			}
			rounds, ok := newLoop(op, known).rounds()
			if !ok {
				rounds = 1
				c.unknown++
			}
			c.count(f, op.regions[0], times, known.within())
			c.count(f, op.regions[1], times*float64(rounds), known.within())
			continue
		default:
			f.flops += times * products(op)
		}
		c.countAll(f, op.regions, times, known)
	}
}

func (c *stepCounter) countAll(f *countedFunction, regions []*region, times float64, known *constants) {
	for _, region := range regions {
		c.count(f, region, times, known.within())
	}
}

var (
	// contracted is the list of a product's dimensions that are summed over, in either form.
	contracted = regexp.MustCompile(`(?:lhs_contracting_dimensions|contracting_dims)\s*=\s*\[([0-9, ]*)\]`)
	// kernelRoles are the roles of a kernel's dimensions, between those of the input and the output.
	kernelRoles = regexp.MustCompile(`x\s*\[([0-9a-z, ]*)\]\s*->`)
	// signature is an operation's type: two operands and a result.
	signature = regexp.MustCompile(`: \(tensor<([^>]*)>, tensor<([^>]*)>\) -> tensor<([^>]*)>`)
)

// products counts the operations of a matrix product or a convolution; 0 for any other operation.
func products(op *operation) float64 {
	switch op.name {
	case "stablehlo.dot", "stablehlo.dot_general", "stablehlo.convolution":
	default:
		return 0
	}
	types := signature.FindStringSubmatch(op.text)
	if types == nil {
		return 0
	}
	left, right, all := tensorDims(types[1]), tensorDims(types[2]), 2*elements(tensorDims(types[3]))
	switch op.name {
	case "stablehlo.dot":
		if len(left) == 0 {
			return 0
		}
		return all * float64(left[len(left)-1])
	case "stablehlo.dot_general":
		if m := contracted.FindStringSubmatch(op.text); m != nil {
			for _, dim := range numbers(m[1]) {
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
	all *= elements(right)
	for i, role := range strings.Split(roles[1], ",") {
		if strings.TrimSpace(role) == "o" && i < len(right) && right[i] > 0 {
			all /= float64(right[i])
		}
	}
	return all
}

// tensorDims reads the dimensions of a tensor such as 8x4xf32.
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

func elements(dims []int) float64 {
	n := 1.0
	for _, d := range dims {
		n *= float64(d)
	}
	return n
}

func numbers(list string) []int {
	var out []int
	for _, text := range strings.Split(list, ",") {
		if n, err := strconv.Atoi(strings.TrimSpace(text)); err == nil && n >= 0 {
			out = append(out, n)
		}
	}
	return out
}
