package report

import "github.com/tpustrategy/tpustrategy/lowering/spmd"

// Kernel is a part of a step of which the operations run apart, and that is predicted as one kernel would
// run it: what they hand each other stays in the fast memory, where it takes no time and no main memory.
// The products take the time that they take apart. It is for attention, of which a kernel never writes the
// scores.
type Kernel struct {
	// Module is the step as package lowering assembled it, and Call what its lines of Go call of which the
	// operations are, as in [Line].
	Module *spmd.Module
	Call   string
}

// keep lays what the operations of a kernel hand each other into the fast memory.
func (k Kernel) keep(m *hloModule) {
	m.locate(k.Module)
	for _, c := range m.computations {
		has := func(i *hloInstruction) bool { return i != nil && i.origin != nil && i.origin.Call == k.Call }
		elsewhere := map[made]bool{} // what other operations read, and what leaves the computation
		read := func(id uint64) {
			for array := range c.byID[id].shape.width() {
				elsewhere[c.origin(made{id, array})] = true
			}
		}
		for _, i := range c.instructions {
			if has(i) || i.opcode == "tuple" || i.opcode == "get-tuple-element" || i.opcode == "bitcast" || i.opcode == "opt-barrier" {
				continue
			}
			for _, id := range i.operands {
				if c.byID[id] != nil {
					read(id)
				}
			}
		}
		if c.byID[c.root] != nil {
			read(c.root)
		}
		for _, i := range c.instructions {
			i.shape = i.shape.near(func(array int) bool {
				at := c.origin(made{i.id, array})
				maker := c.byID[at.id]
				return has(maker) && maker.opcode != "parameter" && !elsewhere[at]
			})
		}
	}
}

// fast is the number of a memory that is not the main one.
const fast = 1

// near is the shape with some of its arrays in the fast memory.
func (s hloShape) near(is func(array int) bool) hloShape {
	if s.elements == nil {
		if is(0) {
			s.memory = fast
		}
		return s
	}
	elements, before := make([]hloShape, len(s.elements)), 0
	for k, e := range s.elements {
		elements[k] = e.near(func(array int) bool { return is(before + array) })
		before += e.width()
	}
	s.elements = elements
	return s
}
