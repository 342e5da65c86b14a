package regex

// maxCode limits the size of compiled expressions.
const maxCode = 1 << 16

// maxNodes limits the compile time of nested repetitions of empty groups.
const maxNodes = 1 << 20

type compiler struct {
	code  []instruction
	nodes int
}

var errTooLarge = syntaxError{0, "an expression whose repetitions are too large"}

func (c *compiler) appendInstruction(in instruction) int {
	if len(c.code) == maxCode {
		panic(errTooLarge)
	}
	c.code = append(c.code, in)
	return len(c.code) - 1
}

func (c *compiler) emitNode(n *node) {
	if c.nodes++; c.nodes > maxNodes {
		panic(errTooLarge)
	}
	switch n.kind {
	case nodeSet:
		c.appendInstruction(instruction{op: opSet, set: n.set})
	case nodeSequence:
		for _, sub := range n.children {
			c.emitNode(sub)
		}
	case nodeAlternation:
		c.emitAlternation(n.children)
	case nodeRepeat:
		c.emitRepeat(n)
	case nodeLook, nodeAtomic:
		op := opLook
		if n.kind == nodeAtomic {
			op = opAtomic
		}
		c.emitNested(instruction{op: op, negated: n.negated}, n.children[0])
	case nodeBehind:
		c.appendInstruction(instruction{op: opBehind, set: n.set, negated: n.negated})
	case nodeAssertion:
		c.appendInstruction(instruction{op: n.op, negated: n.negated})
	}
}

// emitNested emits the instruction in, followed by the code of the expression body and an opMatch
// instruction.
func (c *compiler) emitNested(in instruction, body *node) {
	at := c.appendInstruction(in)
	c.emitNode(body)
	c.appendInstruction(instruction{op: opMatch})
	c.code[at].target, c.code[at].alternative = at+1, len(c.code)
}

func (c *compiler) emitAlternation(subs []*node) {
	var jumps []int
	for i, sub := range subs {
		if i == len(subs)-1 {
			c.emitNode(sub)
			break
		}
		split := c.appendInstruction(instruction{op: opSplit})
		c.emitNode(sub)
		jumps = append(jumps, c.appendInstruction(instruction{op: opJump}))
		c.code[split].target, c.code[split].alternative = split+1, len(c.code)
	}
	for _, j := range jumps {
		c.code[j].target = len(c.code)
	}
}

func (c *compiler) emitRepeat(n *node) {
	body := n.children[0]
	if s := singleSet(body); s != nil {
		c.appendInstruction(instruction{op: opRun, set: s, min: n.min, max: n.max, mode: n.mode})
		return
	}
	if n.mode == possessive {
		backtracking := *n
		backtracking.mode = greedy
		c.emitNested(instruction{op: opAtomic}, &backtracking)
		return
	}
	for range n.min {
		c.emitNode(body)
	}
	// choose points a split at its body and at what follows, in the order of the mode.
	choose := func(split int) {
		c.code[split].target, c.code[split].alternative = split+1, len(c.code)
		if n.mode == lazy {
			c.code[split].target, c.code[split].alternative = c.code[split].alternative, c.code[split].target
		}
	}
	if n.max < 0 {
		split := c.appendInstruction(instruction{op: opSplit})
		c.emitNode(body)
		c.appendInstruction(instruction{op: opJump, target: split})
		choose(split)
		return
	}
	var splits []int
	for range n.max - n.min {
		splits = append(splits, c.appendInstruction(instruction{op: opSplit}))
		c.emitNode(body)
	}
	for _, split := range splits {
		choose(split)
	}
}
