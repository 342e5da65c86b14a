package report

// The number of iterations of a loop is known if the compiler has recorded it, or if its condition
// compares a counter with a constant and each iteration adds a constant to the counter.

// term is a partially evaluated value: an integer, an element of the loop's state plus an integer,
// the whole state, or a tuple.
type term struct {
	kind   termKind
	n      int64  // the integer
	index  uint64 // index in the state
	tuple  *hloInstruction
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

// frame is a computation with the values of its parameters.
type frame struct {
	computation *hloComputation
	parameters  func(number uint64) term
}

// maxTerm bounds the integers so that their sums do not overflow.
const maxTerm = 1 << 40

// evaluator evaluates values with a bounded number of steps.
type evaluator struct {
	module *hloModule
	steps  int
}

func (e *evaluator) eval(at frame, id uint64, depth int) term {
	if e.steps++; e.steps > 1<<12 || depth > maxDepth || at.computation == nil {
		return term{}
	}
	i := at.computation.byID[id]
	if i == nil {
		return term{}
	}
	operand := func(k int) term {
		if k >= len(i.operands) {
			return term{}
		}
		return e.eval(at, i.operands[k], depth+1)
	}
	switch i.opcode {
	case "constant":
		if i.hasScalar && i.scalar < maxTerm && i.scalar > -maxTerm {
			return term{kind: termNumber, n: i.scalar}
		}
	case "parameter":
		if at.parameters != nil {
			return at.parameters(i.number)
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
			if i.index < uint64(len(t.tuple.operands)) {
				return e.eval(t.within, t.tuple.operands[i.index], depth+1)
			}
		}
	case "add", "subtract":
		return sum(operand(0), operand(1), i.opcode == "subtract")
	case "fusion", "call":
		if inner, ok := e.inner(at, i, depth); ok {
			return e.eval(inner, inner.computation.root, depth+1)
		}
	}
	return term{}
}

// inner returns the frame of the computation that a fusion or a call runs.
func (e *evaluator) inner(at frame, i *hloInstruction, depth int) (frame, bool) {
	if len(i.called) == 0 || e.module.computations[i.called[0]] == nil {
		return frame{}, false
	}
	return frame{e.module.computations[i.called[0]], func(number uint64) term {
		if number >= uint64(len(i.operands)) {
			return term{}
		}
		return e.eval(at, i.operands[number], depth+1)
	}}, true
}

// sum adds two terms. At most one of them may be an element of the state.
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

// comparison returns the operands that a loop's condition compares.
func (e *evaluator) comparison(at frame, id uint64, depth int) (direction string, left, right term) {
	if depth > maxDepth || at.computation == nil {
		return "", term{}, term{}
	}
	i := at.computation.byID[id]
	switch {
	case i == nil:
	case i.opcode == "compare" && len(i.operands) == 2:
		return i.direction, e.eval(at, i.operands[0], depth+1), e.eval(at, i.operands[1], depth+1)
	case i.opcode == "fusion" || i.opcode == "call":
		if inner, ok := e.inner(at, i, depth); ok {
			return e.comparison(inner, inner.computation.root, depth+1)
		}
	case (i.opcode == "copy" || i.opcode == "bitcast") && len(i.operands) == 1:
		return e.comparison(at, i.operands[0], depth+1)
	}
	return "", term{}, term{}
}

// rounds returns the number of iterations of a loop in a computation, and whether it is known.
func (m *hloModule) rounds(in *hloComputation, loop *hloInstruction) (int, bool) {
	if loop.trips > 0 {
		return loop.trips, true
	}
	if len(loop.called) != 2 || len(loop.operands) != 1 {
		return 0, false
	}
	e := &evaluator{module: m}
	state := func(uint64) term { return term{kind: termState} }
	body, condition := frame{m.computations[loop.called[0]], state}, frame{m.computations[loop.called[1]], state}
	if body.computation == nil || condition.computation == nil {
		return 0, false
	}
	direction, counter, limit := e.comparison(condition, condition.computation.root, 0)
	if counter.kind != termElement {
		counter, limit = limit, counter
		direction = map[string]string{"LT": "GT", "LE": "GE", "GT": "LT", "GE": "LE", "NE": "NE"}[direction]
	}
	// next returns an element of the state after an iteration. first is its initial value.
	next := func(index uint64) term {
		root := e.eval(body, body.computation.root, 0)
		if root.kind != termTuple || index >= uint64(len(root.tuple.operands)) {
			return term{}
		}
		return e.eval(root.within, root.tuple.operands[index], 0)
	}
	first := func(index uint64) term {
		start := e.eval(frame{computation: in}, loop.operands[0], 0)
		if start.kind != termTuple || index >= uint64(len(start.tuple.operands)) {
			return term{}
		}
		return e.eval(start.within, start.tuple.operands[index], 0)
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
	return countRounds(direction, start.n+counter.n, limit.n, step.n)
}

// maxRounds bounds the iterations of a loop so that their products stay finite.
const maxRounds = 1 << 40

// countRounds returns the number of iterations of a counter that starts at start and increases by
// step while the comparison with limit is true.
func countRounds(direction string, start, limit, step int64) (int, bool) {
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
	return int(min((distance+step-1)/step, maxRounds)), true
}
