package report

import "github.com/tpustrategy/tpustrategy/lowering/spmd"

// Kernel is a part of a step that is compiled to separate operations, but predicted as if one
// kernel ran it: values between its operations stay in fast memory and cost no time and no main
// memory. Its products have the time of the separate operations. Kernel is for attention, because
// an attention kernel never writes the scores to memory.
type Kernel struct {
	// Module is the step as assembled by package lowering/spmd. Call selects the operations: the
	// function that their lines of Go call, as in [Line].
	Module *spmd.Module
	Call   string
}

// keep moves the values between the operations of a kernel to fast memory.
func (k Kernel) keep(m *hloModule) {
	m.locate(k.Module)
	for _, c := range m.computations {
		has := func(i *hloInstruction) bool { return i != nil && i.origin != nil && i.origin.Call == k.Call }
		elsewhere := map[made]bool{} // arrays that other operations read, and results of the computation
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

// fast is the number of a memory other than main memory.
const fast = 1

// near returns the shape with the selected arrays in fast memory.
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
