package report

import (
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/tpustrategy/tpustrategy/internal/screen"
)

// constants are the integers that names stand for, in a region and those around it.
type constants struct {
	values map[string]int64
	around *constants
}

// within returns the constants of a region inside.
func (c *constants) within() *constants { return &constants{around: c} }

// scalarConstant is the value of a constant of one integer.
var (
	scalarConstant = regexp.MustCompile(`^dense<(-?[0-9]{1,12})>`)
	integerType    = regexp.MustCompile(`tensor<u?i[0-9]+>$`)
)

// add notes the constant that an operation makes, if it is one integer.
func (c *constants) add(op *screen.Operation) {
	value := op.Attribute("value")
	m := scalarConstant.FindStringSubmatch(value)
	if m == nil || len(op.Results) != 1 || !integerType.MatchString(value) && (len(op.Outs) == 0 || !integerType.MatchString(op.Outs[0])) {
		return
	}
	if n, err := strconv.ParseInt(m[1], 10, 64); err == nil {
		if c.values == nil {
			c.values = map[string]int64{}
		}
		c.values[op.Results[0]] = n
	}
}

// value finds the integer that a name stands for, in the nearest region that says so.
func (c *constants) value(name string) (int64, bool) {
	for ; c != nil; c = c.around {
		if n, ok := c.values[name]; ok {
			return n, true
		}
	}
	return 0, false
}

// of returns the constants that a region sees, its own among them.
func (c *constants) of(region *screen.Region) *constants {
	inside := c.within()
	for _, op := range region.Ops {
		if op.Name == "stablehlo.constant" {
			inside.add(op)
		}
	}
	return inside
}

// textLoop is a loop of the text, of which the number of rounds is looked for.
type textLoop struct {
	condition, body *screen.Region
	outside         *constants
	// initial are the first values of the state, inCondition and inBody the state's names there.
	initial, inCondition, inBody []string
}

// newLoop reads a loop in the generic form, whose regions name the state each for itself, or in the
// pretty one, which names it once for both.
func newLoop(op *screen.Operation, outside *constants) textLoop {
	l := textLoop{condition: op.Regions[0], body: op.Regions[1], outside: outside, initial: op.Operands}
	l.inCondition, l.inBody = l.condition.Args, l.body.Args
	if len(l.inBody) == 0 {
		l.inBody = l.inCondition
	}
	return l
}

// rounds is how often the loop's body runs, and whether that is known: if the condition compares an
// element of the state with a constant, and the body moves the element by a constant.
func (l textLoop) rounds() (int, bool) {
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
	limit, ok := l.outside.of(l.condition).value(right)
	if !ok {
		if at := slices.Index(l.inCondition, right); at >= 0 && at < len(l.initial) && at < len(l.inBody) && l.returned(at) == l.inBody[at] {
			limit, ok = l.outside.value(l.initial[at]) // carried, and left as it is
		}
	}
	start, known := l.outside.value(l.initial[k])
	if !ok || !known {
		return 0, false
	}
	step, ok := l.step(l.inBody[k], l.returned(k))
	if !ok {
		return 0, false
	}
	return countRounds(direction, start, limit, step)
}

var directions = []string{"LT", "LE", "GT", "GE", "NE"}

// comparison is what the condition compares.
func (l textLoop) comparison() (direction, left, right string) {
	for _, op := range l.condition.Ops {
		if op.Name != "stablehlo.compare" || len(op.Operands) != 2 {
			continue
		}
		words := op.Words
		if _, named, ok := strings.Cut(op.Attribute("comparison_direction"), "comparison_direction "); ok {
			words = []string{strings.Trim(named, "<> ")}
		}
		for _, word := range words {
			if slices.Contains(directions, word) {
				return word, op.Operands[0], op.Operands[1]
			}
		}
	}
	return "", "", ""
}

// returned is the name of an element of the state that the body returns.
func (l textLoop) returned(k int) string {
	for _, op := range slices.Backward(l.body.Ops) {
		if op.Name == "stablehlo.return" && k < len(op.Operands) {
			return op.Operands[k]
		}
	}
	return ""
}

// step is by how much the body moves a counter.
func (l textLoop) step(counter, next string) (int64, bool) {
	if next == "" {
		return 0, false
	}
	for _, op := range l.body.Ops {
		if !op.IsResult(next) || len(op.Operands) != 2 || op.Name != "stablehlo.add" && op.Name != "stablehlo.subtract" {
			continue
		}
		a, b := op.Operands[0], op.Operands[1]
		if a != counter && op.Name == "stablehlo.add" {
			a, b = b, a
		}
		n, ok := l.outside.of(l.body).value(b)
		if op.Name == "stablehlo.subtract" {
			n = -n
		}
		return n, ok && a == counter
	}
	return 0, false
}
