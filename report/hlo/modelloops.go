package hlo

import (
	"regexp"
	"slices"
	"strconv"
)

// constants contains the integer constants of a region by name, and refers to the constants of the
// enclosing region.
type constants struct {
	values map[string]int64
	parent *constants
}

func (c *constants) nested() *constants { return &constants{parent: c} }

var scalarConstant = regexp.MustCompile(`dense<(-?[0-9]{1,12})> : tensor<u?i[0-9]+>`)

// add records the constant that an operation defines, if the constant is a single integer.
func (c *constants) add(op *operation) {
	m := scalarConstant.FindStringSubmatch(op.text)
	if m == nil || len(op.results) != 1 {
		return
	}
	if n, err := strconv.ParseInt(m[1], 10, 64); err == nil {
		if c.values == nil {
			c.values = map[string]int64{}
		}
		c.values[op.results[0]] = n
	}
}

// value returns the integer constant with the given name. If several regions define the name, the
// innermost one applies.
func (c *constants) value(name string) (int64, bool) {
	for ; c != nil; c = c.parent {
		if n, ok := c.values[name]; ok {
			return n, true
		}
	}
	return 0, false
}

// inRegion returns the constants that are visible in a region, including the constants that the
// region defines.
func (c *constants) inRegion(region *region) *constants {
	inside := c.nested()
	for _, op := range region.ops {
		if op.name == "stablehlo.constant" {
			inside.add(op)
		}
	}
	return inside
}

type textLoop struct {
	condition, body *region
	outside         *constants
	// initial are the names of the initial values that the loop carries. inCondition and inBody are
	// the names of the carried values in the two regions.
	initial, inCondition, inBody []string
}

// newLoop reads a loop from its text. In MLIR's generic form, each region has its own names for the
// carried values. In the custom form, both regions use the same names.
func newLoop(op *operation, outside *constants) textLoop {
	l := textLoop{condition: op.regions[0], body: op.regions[1], outside: outside, initial: op.operands}
	l.inCondition, l.inBody = l.condition.args, l.body.args
	if len(l.inBody) == 0 {
		l.inBody = l.inCondition
	}
	return l
}

// iterations returns the number of iterations of a loop, and whether the number is known. It is
// known if the condition compares a carried value with a constant, and the body adds a constant to
// the carried value.
func (l textLoop) iterations() (int, bool) {
	direction, left, right := l.comparison()
	k := slices.Index(l.inCondition, left)
	if k < 0 {
		left, right = right, left
		direction = map[string]string{"LT": "GT", "LE": "GE", "GT": "LT", "GE": "LE", "NE": "NE"}[direction]
		k = slices.Index(l.inCondition, left)
	}
	if k < 0 || k >= len(l.initial) || k >= len(l.inBody) {
		return 0, false
	}
	limit, ok := l.outside.inRegion(l.condition).value(right)
	if !ok {
		if at := slices.Index(l.inCondition, right); at >= 0 && at < len(l.initial) && at < len(l.inBody) &&
			l.returnedValue(at) == l.inBody[at] {
			limit, ok = l.outside.value(l.initial[at]) // carried unchanged
		}
	}
	start, known := l.outside.value(l.initial[k])
	if !ok || !known {
		return 0, false
	}
	step, ok := l.step(l.inBody[k], l.returnedValue(k))
	if !ok {
		return 0, false
	}
	return countIterations(direction, start, limit, step)
}

// direction matches the direction of a comparison, in either form.
var direction = regexp.MustCompile(`\b(LT|LE|GT|GE|NE)\b`)

// comparison returns the direction and the operands of the comparison in the loop's condition.
func (l textLoop) comparison() (by, left, right string) {
	for _, op := range l.condition.ops {
		if by = direction.FindString(op.text); by != "" && op.name == "stablehlo.compare" && len(op.operands) == 2 {
			return by, op.operands[0], op.operands[1]
		}
	}
	return "", "", ""
}

// returnedValue returns the name of the value that the body of the loop returns for carried value
// k.
func (l textLoop) returnedValue(k int) string {
	for _, op := range slices.Backward(l.body.ops) {
		if op.name == "stablehlo.return" && k < len(op.operands) {
			return op.operands[k]
		}
	}
	return ""
}

func (l textLoop) step(counter, next string) (int64, bool) {
	if next == "" {
		return 0, false
	}
	for _, op := range l.body.ops {
		if !op.defines(next) || len(op.operands) != 2 || op.name != "stablehlo.add" && op.name != "stablehlo.subtract" {
			continue
		}
		a, b := op.operands[0], op.operands[1]
		if a != counter && op.name == "stablehlo.add" {
			a, b = b, a
		}
		n, ok := l.outside.inRegion(l.body).value(b)
		if op.name == "stablehlo.subtract" {
			n = -n
		}
		return n, ok && a == counter
	}
	return 0, false
}
