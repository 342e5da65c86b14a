package hlo

// keepInFastMemory moves the values between the operations of a kernel to fast memory. The lines of
// Go of these operations call the function call.
func (p *Program) keepInFastMemory(call string) {
	for _, c := range p.ordered {
		inKernel := func(i *Instruction) bool { return i != nil && i.Origin != nil && i.Origin.Call == call }
		needed := map[arrayRef]bool{} // arrays that other operations read, and results of the computation
		read := func(i *Instruction) {
			for array := range i.shape.width() {
				needed[arrayRef{i, array}.source()] = true
			}
		}
		for _, i := range c.Instructions {
			if inKernel(i) || i.Opcode == "tuple" || i.Opcode == "get-tuple-element" || i.Opcode == "bitcast" || i.Opcode == "opt-barrier" {
				continue
			}
			for _, o := range i.Operands {
				if o != nil {
					read(o)
				}
			}
		}
		if c.Root != nil {
			read(c.Root)
		}
		for _, i := range c.Instructions {
			i.shape = i.shape.withFastArrays(func(array int) bool {
				at := arrayRef{i, array}.source()
				return inKernel(at.of) && at.of.Opcode != "parameter" && !needed[at]
			})
		}
	}
}

// fastMemory is the memory space of a TPU core's fast memory.
const fastMemory = 1

// withFastArrays returns the shape with the selected arrays in fast memory.
func (s hloShape) withFastArrays(selected func(array int) bool) hloShape {
	if s.elements == nil {
		if selected(0) {
			s.memory = fastMemory
		}
		return s
	}
	elements, before := make([]hloShape, len(s.elements)), 0
	for k, e := range s.elements {
		elements[k] = e.withFastArrays(func(array int) bool { return selected(before + array) })
		before += e.width()
	}
	s.elements = elements
	return s
}
