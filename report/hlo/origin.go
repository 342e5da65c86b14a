package hlo

import (
	"strings"

	"github.com/tpustrategy/tpustrategy/lowering/ir"
	"github.com/tpustrategy/tpustrategy/lowering/spmd"
)

// Part is the part of an instruction that comes from one origin. Origin is nil if the origin is
// unknown. The weights of all parts of an instruction add up to 1.
type Part struct {
	Origin *ir.Origin
	Weight float64
}

// locate determines the origin of each instruction from the instruction's name. The origins of a
// fusion are the origins of its contents, and the origin of a parameter is the origin of the step's
// argument. An instruction without a name was inserted by the compiler. Its origin is the origin of
// an operand or, if no operand has one, of a reader.
func (p *Program) locate(m *spmd.Module) {
	p.HasOrigins = true
	for _, c := range p.ordered {
		for _, i := range c.Instructions {
			if i.Opcode != "get-tuple-element" { // a get-tuple-element has the name of its tuple
				i.Origin = ir.OriginOf(i.Source, m.Origins)
			}
		}
	}
	for _, i := range p.Entry.Instructions {
		if i.Opcode == "parameter" && i.Number < uint64(len(m.Arguments)) {
			i.Origin = m.Arguments[i.Number].Origin
		}
	}
	a := &analyzer{}
	for _, c := range p.ordered {
		for _, i := range c.Instructions {
			i.Parts = a.fusionParts(i)
		}
	}
	for _, c := range p.ordered {
		for _, i := range c.Instructions {
			if i.Opcode == "get-tuple-element" {
				i.Origin = elementOrigin(arrayRef{i, 0}, 0)
			}
			if i.Origin == nil {
				i.Origin = mainOrigin(i.Parts)
			}
			for k := 0; i.Origin == nil && k < len(i.Operands); k++ {
				if o := i.Operands[k]; o != nil {
					i.Origin = o.Origin
				}
			}
		}
		for k := len(c.Instructions) - 1; k >= 0; k-- {
			i := c.Instructions[k]
			for _, u := range i.uses {
				if i.Origin == nil {
					i.Origin = u.by.Origin
				}
			}
		}
		for _, i := range c.Instructions {
			i.divideCollective()
		}
	}
	for _, c := range p.ordered {
		for _, i := range c.Instructions {
			if len(i.Parts) == 0 {
				i.Parts = []Part{{i.Origin, 1}}
			}
		}
	}
}

// divideCollective divides a collective of several tensors into one part per tensor, because
// compilers combine several collectives into one. The operation that waits for the collective has
// the same parts.
func (i *Instruction) divideCollective() {
	switch {
	case len(i.Operands) > 0 && strings.HasSuffix(i.Opcode, "-done"):
		if i.Operands[0] != nil {
			i.Parts = i.Operands[0].Parts
		}
	case len(i.Operands) > 1 && i.Collective != "":
		i.Parts = nil
		total := 0.0
		for _, o := range i.Operands {
			if o != nil {
				bytes := float64(o.shape.bytes())
				i.Parts, total = append(i.Parts, Part{o.Origin, bytes}), total+bytes
			}
		}
		for k := range i.Parts {
			i.Parts[k].Weight /= max(total, 1)
		}
	}
}

// fusionParts divides a fusion or an asynchronous computation into one part for each origin of its
// operations. The weights are the FLOPs of the matrix products and convolutions if there are any,
// and otherwise the numbers of result elements.
func (a *analyzer) fusionParts(i *Instruction) (parts []Part) {
	if i.Opcode != "fusion" && i.Opcode != "async-start" {
		return nil
	}
	products, others := map[*ir.Origin]float64{}, map[*ir.Origin]float64{}
	var order []*ir.Origin
	for _, called := range i.Called {
		for k := 0; called != nil && k < len(called.Instructions); k++ {
			a.eachInside(called.Instructions[k], 1, func(x *Instruction) {
				if x.Origin == nil || x.Opcode == "parameter" || x.Opcode == "constant" {
					return
				}
				if products[x.Origin] == 0 && others[x.Origin] == 0 {
					order = append(order, x.Origin)
				}
				products[x.Origin] += x.PaddedFLOPs(1)
				others[x.Origin] += max(x.shape.count(), 1)
			})
		}
	}
	sum := func(weights map[*ir.Origin]float64) (total float64) {
		for _, o := range order {
			total += weights[o]
		}
		return total
	}
	weights, total := products, sum(products)
	if total == 0 {
		weights, total = others, sum(others)
	}
	for _, o := range order {
		if weights[o] > 0 {
			parts = append(parts, Part{o, weights[o] / total})
		}
	}
	return parts
}

func mainOrigin(parts []Part) (origin *ir.Origin) {
	weight := 0.0
	for _, p := range parts {
		if p.Weight > weight {
			origin, weight = p.Origin, p.Weight
		}
	}
	return origin
}

// elementOrigin returns the origin of an array in a tuple. For a value that a loop carries, it is
// the origin of the value that the body returns. If the body returns the value unchanged, it is the
// origin of the initial value.
func elementOrigin(at arrayRef, depth int) *ir.Origin {
	at = at.source()
	i := at.of
	if depth > maxDepth {
		return nil
	}
	if i.Opcode != "while" {
		return i.arrayOrigin(at.array)
	}
	for _, body := range i.Called {
		if body == nil || body.Root == nil || body.Root.shape.width() != i.shape.width() {
			continue // the condition
		}
		if inner := (arrayRef{body.Root, at.array}).source(); inner.of.Opcode != "parameter" {
			return elementOrigin(inner, depth+1)
		}
	}
	if len(i.Operands) == 1 && i.Operands[0] != nil {
		return elementOrigin(arrayRef{i.Operands[0], at.array}, depth+1)
	}
	return nil
}

// arrayOrigin returns the origin of an array in the result of the instruction. The arrays of a
// fusion or of a collective can have different origins.
func (i *Instruction) arrayOrigin(array int) *ir.Origin {
	if i.Collective != "" && len(i.Operands) > 1 && i.operand(array) != nil {
		return i.Operands[array].Origin
	}
	if c := i.body(); i.Opcode == "fusion" && c != nil && c.Root != nil {
		if x := (arrayRef{c.Root, array}).source().of; x.Opcode != "parameter" && x.Origin != nil {
			return x.Origin
		}
	}
	return i.Origin
}

// keepInFastMemory treats the operations that come from calls of a function, such as attention, as
// one kernel. It moves the values that only these operations use from main memory to fast memory.
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
			if inKernel(i) || i.Opcode == "tuple" || i.Opcode == "get-tuple-element" || i.Opcode == "bitcast" ||
				i.Opcode == "opt-barrier" {
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
