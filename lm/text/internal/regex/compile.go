package regex

// maxCode limits the size of compiled expressions.
const maxCode = 1 << 16

// maxNodes limits the work for repetitions of empty groups.
const maxNodes = 1 << 20

type compiler struct {
	code  []instruction
	nodes int
}

var errTooLarge = syntaxError{0, "an expression whose repetitions are too large"}

func (c *compiler) append(in instruction) int {
	if len(c.code) == maxCode {
		panic(errTooLarge)
	}
	c.code = append(c.code, in)
	return len(c.code) - 1
}

func (c *compiler) emit(n *node) {
	if c.nodes++; c.nodes > maxNodes {
		panic(errTooLarge)
	}
	switch n.kind {
	case nodeSet:
		c.append(instruction{op: opSet, set: n.set})
	case nodeSequence:
		for _, sub := range n.subs {
			c.emit(sub)
		}
	case nodeAlternation:
		c.emitAlternation(n.subs)
	case nodeRepeat:
		c.emitRepeat(n)
	case nodeLook, nodeAtomic:
		op := opLook
		if n.kind == nodeAtomic {
			op = opAtomic
		}
		c.emitNested(instruction{op: op, negated: n.negated}, n.subs[0])
	case nodeBehind:
		c.append(instruction{op: opBehind, set: n.set, negated: n.negated})
	case nodeAssertion:
		c.append(instruction{op: n.op, negated: n.negated})
	}
}

// emitNested emits in, followed by the code that in runs, which ends with opMatch.
func (c *compiler) emitNested(in instruction, body *node) {
	at := c.append(in)
	c.emit(body)
	c.append(instruction{op: opMatch})
	c.code[at].x, c.code[at].y = at+1, len(c.code)
}

func (c *compiler) emitAlternation(subs []*node) {
	var jumps []int
	for i, sub := range subs {
		if i == len(subs)-1 {
			c.emit(sub)
			break
		}
		split := c.append(instruction{op: opSplit})
		c.emit(sub)
		jumps = append(jumps, c.append(instruction{op: opJump}))
		c.code[split].x, c.code[split].y = split+1, len(c.code)
	}
	for _, j := range jumps {
		c.code[j].x = len(c.code)
	}
}

func (c *compiler) emitRepeat(n *node) {
	body := n.subs[0]
	if s := singleSet(body); s != nil {
		c.append(instruction{op: opRun, set: s, min: n.min, max: n.max, mode: n.mode})
		return
	}
	if n.mode == possessive {
		backtracking := *n
		backtracking.mode = greedy
		c.emitNested(instruction{op: opAtomic}, &backtracking)
		return
	}
	for range n.min {
		c.emit(body)
	}
	// choose points a split at its body and at what follows, in the order of the mode.
	choose := func(split int) {
		c.code[split].x, c.code[split].y = split+1, len(c.code)
		if n.mode == lazy {
			c.code[split].x, c.code[split].y = c.code[split].y, c.code[split].x
		}
	}
	if n.max < 0 {
		split := c.append(instruction{op: opSplit})
		c.emit(body)
		c.append(instruction{op: opJump, x: split})
		choose(split)
		return
	}
	var splits []int
	for range n.max - n.min {
		splits = append(splits, c.append(instruction{op: opSplit}))
		c.emit(body)
	}
	for _, split := range splits {
		choose(split)
	}
}
