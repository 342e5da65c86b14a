package hlo

// The number of iterations of a loop is known if the compiler has recorded it, or if its condition
// compares a counter with a constant and each iteration adds a constant to the counter.

// term is the result of evaluating a value of a loop. It is an integer, a value that the loop
// carries plus an integer, the tuple of all carried values, or another tuple.
type term struct {
	kind   termKind
	n      int64  // the integer
	index  uint64 // of the carried value
	tuple  *Instruction
	within frame // the frame that contains the tuple
}

type termKind int

const (
	termUnknown termKind = iota
	termNumber
	termElement
	termState
	termTuple
)

// frame is a computation together with the values of its parameters.
type frame struct {
	computation *Computation
	parameters  func(number uint64) term
}

// maxTerm bounds the integers so that their sums do not overflow.
const maxTerm = 1 << 40

// evaluator evaluates the integers that determine the number of iterations of a loop. It limits the
// number of steps, because a program can be malformed.
type evaluator struct{ steps int }

func (e *evaluator) eval(at frame, i *Instruction, depth int) term {
	if e.steps++; e.steps > 1<<12 || depth > maxDepth || i == nil {
		return term{}
	}
	operand := func(k int) term { return e.eval(at, i.operand(k), depth+1) }
	switch i.Opcode {
	case "constant":
		if i.hasScalar && i.scalar < maxTerm && i.scalar > -maxTerm {
			return term{kind: termNumber, n: i.scalar}
		}
	case "parameter":
		if at.parameters != nil {
			return at.parameters(i.Number)
		}
	case "copy", "bitcast", "convert", "reshape", "copy-start", "copy-done", "opt-barrier":
		return operand(0)
	case "tuple":
		return term{kind: termTuple, tuple: i, within: at}
	case "get-tuple-element":
		switch t := operand(0); t.kind {
		case termState:
			return term{kind: termElement, index: i.index}
		case termTuple:
			if i.index < uint64(len(t.tuple.Operands)) {
				return e.eval(t.within, t.tuple.Operands[i.index], depth+1)
			}
		}
	case "add", "subtract":
		return sum(operand(0), operand(1), i.Opcode == "subtract")
	case "fusion", "call":
		if inner, ok := e.inner(at, i, depth); ok {
			return e.eval(inner, inner.computation.Root, depth+1)
		}
	}
	return term{}
}

func (e *evaluator) inner(at frame, i *Instruction, depth int) (frame, bool) {
	if len(i.Called) == 0 || i.Called[0] == nil {
		return frame{}, false
	}
	return frame{i.Called[0], func(number uint64) term {
		if number >= uint64(len(i.Operands)) {
			return term{}
		}
		return e.eval(at, i.Operands[number], depth+1)
	}}, true
}

// sum adds two terms, or subtracts b if minus is true. Only one of the terms may contain a value
// that the loop carries.
func sum(a, b term, minus bool) term {
	if a.kind == termNumber && b.kind == termElement && !minus {
		a, b = b, a
	}
	if b.kind != termNumber || a.kind != termNumber && a.kind != termElement {
		return term{}
	}
	if minus {
		b.n = -b.n
	}
	if a.n += b.n; a.n >= maxTerm || a.n <= -maxTerm {
		return term{}
	}
	return a
}

// comparison returns the direction and the operands of the comparison that computes instruction i,
// which is a loop's condition.
func (e *evaluator) comparison(at frame, i *Instruction, depth int) (direction string, left, right term) {
	switch {
	case i == nil || depth > maxDepth:
	case i.Opcode == "compare" && len(i.Operands) == 2:
		return i.direction, e.eval(at, i.Operands[0], depth+1), e.eval(at, i.Operands[1], depth+1)
	case i.Opcode == "fusion" || i.Opcode == "call":
		if inner, ok := e.inner(at, i, depth); ok {
			return e.comparison(inner, inner.computation.Root, depth+1)
		}
	case (i.Opcode == "copy" || i.Opcode == "bitcast") && len(i.Operands) == 1:
		return e.comparison(at, i.Operands[0], depth+1)
	}
	return "", term{}, term{}
}

// iterations returns the number of iterations of a loop, and whether it is known.
func (i *Instruction) iterations() (int, bool) {
	if len(i.Called) != 2 || len(i.Operands) != 1 || i.Called[0] == nil || i.Called[1] == nil {
		return 0, false
	}
	e := &evaluator{}
	state := func(uint64) term { return term{kind: termState} }
	body, condition := frame{i.Called[0], state}, frame{i.Called[1], state}
	direction, counter, limit := e.comparison(condition, condition.computation.Root, 0)
	if counter.kind != termElement {
		counter, limit = limit, counter
		direction = map[string]string{"LT": "GT", "LE": "GE", "GT": "LT", "GE": "LE", "NE": "NE"}[direction]
	}
	// next returns an element of the state after an iteration. first is its initial value.
	next := func(index uint64) term {
		root := e.eval(body, body.computation.Root, 0)
		if root.kind != termTuple || index >= uint64(len(root.tuple.Operands)) {
			return term{}
		}
		return e.eval(root.within, root.tuple.Operands[index], 0)
	}
	first := func(index uint64) term {
		start := e.eval(frame{}, i.Operands[0], 0)
		if start.kind != termTuple || index >= uint64(len(start.tuple.Operands)) {
			return term{}
		}
		return e.eval(start.within, start.tuple.Operands[index], 0)
	}
	if limit.kind == termElement { // a limit that the loop carries unchanged
		offset := limit.n
		if same := next(limit.index); same.kind != termElement || same.index != limit.index || same.n != 0 {
			return 0, false
		}
		limit = sum(first(limit.index), term{kind: termNumber, n: offset}, false)
	}
	step, start := next(counter.index), first(counter.index)
	if counter.kind != termElement || limit.kind != termNumber || start.kind != termNumber ||
		step.kind != termElement || step.index != counter.index {
		return 0, false
	}
	return countIterations(direction, start.n+counter.n, limit.n, step.n)
}

// maxIterations bounds the iterations of a loop so that their products stay finite.
const maxIterations = 1 << 40

// countIterations returns the number of iterations of a loop with a counter. The counter is start
// in the first iteration and increases by step. The loop runs while the comparison of the counter
// with limit is true.
func countIterations(direction string, start, limit, step int64) (int, bool) {
	distance := limit - start
	switch direction {
	case "LE":
		distance++
	case "GE":
		distance--
	}
	switch {
	case direction == "NE" && (step == 0 || distance%step != 0 || distance/step < 0):
		return 0, false
	case direction == "GT" || direction == "GE" || direction == "NE" && step < 0:
		distance, step = -distance, -step
	case direction != "LT" && direction != "LE" && direction != "NE":
		return 0, false
	}
	switch {
	case distance <= 0:
		return 0, true
	case step <= 0:
		return 0, false // infinite loop
	}
	return int(min((distance+step-1)/step, maxIterations)), true
}
