package report

import (
	"strings"

	"github.com/tpustrategy/tpustrategy/lowering/ir"
	"github.com/tpustrategy/tpustrategy/lowering/spmd"
)

// part is the share of an operation with one origin, which is nil if it is unknown.
type part struct {
	origin *ir.Origin
	weight float64
}

// locate determines the origins of the instructions: by their names; for fusions by their contents;
// for arguments by the arguments of the step; and for instructions without a name, which the
// compiler inserted, by their operands or else by their readers.
func (m *hloModule) locate(of *spmd.Module) {
	m.origins = of.Origins
	for _, c := range m.computations {
		for _, i := range c.instructions {
			if i.opcode != "get-tuple-element" { // a get-tuple-element has the name of its tuple
				i.origin = ir.OriginOf(i.source, of.Origins)
			}
		}
	}
	entry := m.computations[m.entry]
	for _, i := range entry.instructions {
		if i.opcode == "parameter" && i.number < uint64(len(of.Arguments)) {
			i.origin = of.Arguments[i.number].Origin
		}
	}
	inside := &reading{module: m}
	for _, c := range m.computations {
		for _, i := range c.instructions {
			i.parts = inside.parts(i)
		}
	}
	for _, c := range m.computations {
		for _, i := range c.instructions {
			if i.opcode == "get-tuple-element" {
				i.origin = m.element(c, made{i.id, 0}, 0)
			}
			if i.origin == nil {
				i.origin = most(i.parts)
			}
			for k := 0; i.origin == nil && k < len(i.operands); k++ {
				if o := c.byID[i.operands[k]]; o != nil {
					i.origin = o.origin
				}
			}
		}
		for k := len(c.instructions) - 1; k >= 0; k-- {
			i := c.instructions[k]
			for _, u := range c.usesOf(i.id) {
				if i.origin == nil {
					i.origin = u.by.origin
				}
			}
		}
		for _, i := range c.instructions {
			c.apart(i)
		}
	}
}

// apart splits a collective of several tensors, which compilers combine from several collectives,
// into one part per tensor. The operation that waits for it has the same parts.
func (c *hloComputation) apart(i *hloInstruction) {
	switch first := uint64(0); {
	case len(i.operands) > 0 && strings.HasSuffix(i.opcode, "-done"):
		if first = i.operands[0]; c.byID[first] != nil {
			i.parts = c.byID[first].parts
		}
	case len(i.operands) > 1 && collectiveKinds[i.opcode] != "":
		i.parts = nil
		all := 0.0
		for _, id := range i.operands {
			if o := c.byID[id]; o != nil {
				bytes := float64(o.shape.bytes())
				i.parts, all = append(i.parts, part{o.origin, bytes}), all+bytes
			}
		}
		for k := range i.parts {
			i.parts[k].weight /= max(all, 1)
		}
	}
}

// parts returns the origins of the operations in a fusion or in an asynchronous computation.
// Products get its whole time if there are any. Otherwise the time is divided by the number of
// result elements.
func (w *reading) parts(i *hloInstruction) []part {
	if i.opcode != "fusion" && i.opcode != "async-start" {
		return nil
	}
	products, others := map[*ir.Origin]float64{}, map[*ir.Origin]float64{}
	var order []*ir.Origin
	for _, called := range i.called {
		inner := w.module.computations[called]
		for k := 0; inner != nil && k < len(inner.instructions); k++ {
			w.eachInside(inner, inner.instructions[k], 1, func(c *hloComputation, x *hloInstruction) {
				if x.origin == nil || x.opcode == "parameter" || x.opcode == "constant" {
					return
				}
				if products[x.origin] == 0 && others[x.origin] == 0 {
					order = append(order, x.origin)
				}
				products[x.origin] += padded(c, x, 1)
				others[x.origin] += max(x.shape.count(), 1)
			})
		}
	}
	sum := func(weights map[*ir.Origin]float64) (all float64) {
		for _, o := range order {
			all += weights[o]
		}
		return all
	}
	weights, all := products, sum(products)
	if all == 0 {
		weights, all = others, sum(others)
	}
	var parts []part
	for _, o := range order {
		if weights[o] > 0 {
			parts = append(parts, part{o, weights[o] / all})
		}
	}
	return parts
}

// most returns the origin with the largest share.
func most(parts []part) (origin *ir.Origin) {
	weight := 0.0
	for _, p := range parts {
		if p.weight > weight {
			origin, weight = p.origin, p.weight
		}
	}
	return origin
}

// shares returns the origins of an operation's time.
func (i *hloInstruction) shares() []part {
	if i == nil {
		return []part{{weight: 1}}
	}
	if len(i.parts) > 0 {
		return i.parts
	}
	return []part{{i.origin, 1}}
}

// element returns the origin of an array that is an element of a result. A carried value of a loop
// has the origin of the body, or the origin before the loop if the body returns it unchanged.
func (m *hloModule) element(c *hloComputation, at made, depth int) *ir.Origin {
	at = c.origin(at)
	x := c.byID[at.id]
	if x == nil || depth > maxDepth {
		return nil
	}
	if x.opcode != "while" {
		return m.made(c, x, at.array)
	}
	for _, called := range x.called {
		body := m.computations[called]
		if body == nil || body.byID[body.root] == nil || body.byID[body.root].shape.width() != x.shape.width() {
			continue // the condition
		}
		if inner := body.origin(made{body.root, at.array}); body.byID[inner.id] != nil && body.byID[inner.id].opcode != "parameter" {
			return m.element(body, inner, depth+1)
		}
	}
	if len(x.operands) == 1 {
		return m.element(c, made{x.operands[0], at.array}, depth+1)
	}
	return nil
}

// made returns the origin of an array of an instruction's result: for a fusion with several
// results, the origin of that result, and for a collective of several tensors, the origin of the
// tensor.
func (m *hloModule) made(c *hloComputation, i *hloInstruction, array int) *ir.Origin {
	if collectiveKinds[i.opcode] != "" && len(i.operands) > 1 && array < len(i.operands) && c.byID[i.operands[array]] != nil {
		return c.byID[i.operands[array]].origin
	}
	if i.opcode == "fusion" && len(i.called) == 1 {
		if c := m.computations[i.called[0]]; c != nil {
			if x := c.byID[c.origin(made{c.root, array}).id]; x != nil && x.opcode != "parameter" && x.origin != nil {
				return x.origin
			}
		}
	}
	return i.origin
}
