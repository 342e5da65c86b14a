package hlo

import (
	"maps"
	"slices"
)

// collectiveKinds are the kinds of the operations that move data between cores, by opcode.
var collectiveKinds = map[string]string{
	"all-reduce": "all-reduce", "all-reduce-start": "all-reduce",
	"all-gather": "all-gather", "all-gather-start": "all-gather",
	"reduce-scatter": "reduce-scatter",
	"all-to-all":     "all-to-all", "ragged-all-to-all": "all-to-all",
	"collective-permute": "collective-permute", "collective-permute-start": "collective-permute",
	"collective-broadcast": "collective-broadcast",
	"send":                 "send",
}

// CollectiveKinds returns the possible values of [Instruction].Collective in order.
func CollectiveKinds() []string {
	return slices.Compact(slices.Sorted(maps.Values(collectiveKinds)))
}

// analyzer computes the FLOPs and the traffic of instructions. It limits the number of steps,
// because a program can be malformed.
type analyzer struct {
	steps     int
	truncated bool // the bound was reached
}

// maxSteps bounds the steps in a malformed program with recursive calls.
const maxSteps = 1 << 22

// measure sets the FLOPs and the bytes of the instructions of c, and of the computations that the
// loops, branches and calls in c run.
func (p *Program) measure(c *Computation, a *analyzer, depth int) {
	if c == nil || c.measured || depth > maxDepth {
		return
	}
	c.measured = true
	for _, i := range c.Instructions {
		if a.steps++; a.steps > maxSteps {
			a.truncated = true
			break
		}
		switch i.Opcode {
		case "while", "conditional", "call", "async-start":
		default:
			t := a.traffic(i, 0)
			i.FLOPs, i.BytesAccessed, i.MainBytes = a.flops(i, 0), t.bytes, t.main
			a.eachInside(i, 0, func(x *Instruction) {
				if x.Collective != "" || x.Opcode == "dot" || x.Opcode == "convolution" {
					i.Inside = append(i.Inside, x)
				}
			})
			if i.Opcode == "fusion" {
				continue
			}
		}
		for _, called := range i.Called {
			p.measure(called, a, depth+1)
		}
	}
	p.Truncated = a.truncated
}

// freeCalls are custom calls without work, which the compiler uses internally.
var freeCalls = []string{"ConcatBitcast", "SliceBitcast", "AllocateBuffer", "Sharding", "SPMDFullToShardShape",
	"SPMDShardToFullShape", "AssumeGatherIndicesInBound",
	"X64Combine", "X64SplitHigh", "X64SplitLow"}

// free are operations without work, or whose start was counted.
var free = []string{
	"parameter", "constant", "tuple", "get-tuple-element", "bitcast", "after-all", "opt-barrier", "add-dependency",
	"partition-id", "replica-id", "domain",
	"async-update", "async-done", "copy-done", "send-done", "recv-done", "all-reduce-done", "all-gather-done",
	"collective-permute-done", "get-dimension-size",
}

var moving = []string{
	"copy", "copy-start", "transpose", "reshape", "broadcast", "iota", "pad", "concatenate", "reverse", "slice",
	"dynamic-slice", "dynamic-update-slice",
	"gather", "custom-call", "infeed", "outfeed", "recv", "send", "rng-get-and-update-state", "rng-bit-generator", "rng",
	"sort", "bitcast-convert",
	"dynamic-reshape", "tanh", "exponential", "exponential-minus-one", "log", "log-plus-one", "logistic", "power", "rsqrt",
	"sqrt", "cbrt", "cosine", "sine", "tan",
	"erf", "atan2", // transcendental functions are counted separately
}

// flops returns the number of arithmetic operations of an instruction. Each product that is added
// to a sum counts as two operations, and each element of other results as one.
func (a *analyzer) flops(i *Instruction, depth int) (flops float64) {
	switch {
	case i.Opcode == "fusion":
		a.eachInside(i, depth, func(x *Instruction) { flops += a.flops(x, depth) })
		return flops
	case i.Opcode == "dot":
		return i.product.dot(i.operandShape(0), i.shape)
	case i.Opcode == "convolution":
		return i.product.convolution(i.operandShape(0), i.shape)
	case i.Opcode == "reduce":
		return max(i.operandShape(0).count()-i.shape.count(), 0)
	case i.Opcode == "reduce-window", i.Opcode == "select-and-scatter":
		windows := i.shape
		if i.Opcode == "select-and-scatter" {
			windows = i.operandShape(1) // the gradients, one per window
		}
		return i.product.windows(i.operandShape(0), windows)
	case i.Opcode == "scatter":
		return i.operandShape(2).count()
	case slices.Contains(free, i.Opcode), slices.Contains(moving, i.Opcode):
		return 0
	}
	return i.shape.count()
}

// traffic returns the bytes that an operation reads and writes. An operation that reads or writes a
// slice of a tensor accesses only the slice.
func (a *analyzer) traffic(i *Instruction, depth int) (t traffic) {
	shape := i.operandShape
	slice := func(of, slice hloShape) traffic { return of.moved(float64(slice.bytes())) }
	switch i.Opcode {
	case "fusion":
		for k := range i.Operands {
			t = t.plus(shape(k).moved(a.bytesRead(i, uint64(k), shape(k), depth)))
		}
		return t.plus(a.bytesWritten(i, depth))
	case "slice", "dynamic-slice", "gather":
		return slice(shape(0), i.shape).plus(i.shape.in())
	case "dynamic-update-slice":
		return shape(1).in().plus(slice(i.shape, shape(1)))
	case "scatter":
		return shape(1).in().plus(shape(2).in()).plus(slice(i.shape, shape(2))).plus(slice(i.shape, shape(2)))
	case "copy-start": // its result is a tuple of the copy, the original and a flag
		if len(i.shape.elements) > 0 {
			return shape(0).in().plus(i.shape.elements[0].in())
		}
	}
	if i.Free {
		return t
	}
	for k := range i.Operands {
		t = t.plus(shape(k).in())
	}
	if len(i.shape.elements) > 0 && i.Collective != "" && i.Opcode != i.Collective {
		return t // the start of an asynchronous operation, whose result contains its operands
	}
	return t.plus(i.shape.in())
}

// bytesRead returns the number of bytes of an operand that a fusion reads. If the fusion reads only
// slices of the operand, only the slices count.
func (a *analyzer) bytesRead(fusion *Instruction, number uint64, operand hloShape, depth int) float64 {
	all := float64(operand.bytes())
	bytes, isResult := a.bytesReadInside(fusion, number, all, depth)
	if isResult {
		return all
	}
	return min(bytes, all)
}

// bytesReadInside returns the number of bytes of an operand that the operations in a fusion read,
// out of all bytes. It also returns whether the operand is a result of the fusion.
func (a *analyzer) bytesReadInside(fusion *Instruction, number uint64, all float64, depth int) (bytes float64,
	isResult bool) {
	c := fusion.body()
	if c == nil || c.parameters[number] == nil || depth > maxDepth {
		return all, false
	}
	return a.bytesUsed(c, c.parameters[number], all, depth)
}

// bytesUsed returns the number of bytes of a value that the operations of a computation read, out
// of all bytes. It also returns whether the value is the result of the computation.
func (a *analyzer) bytesUsed(c *Computation, value *Instruction, all float64, depth int) (bytes float64,
	isResult bool) {
	isResult = c.Root == value
	for _, u := range value.uses {
		if a.steps++; a.steps > maxSteps || bytes >= all || depth > maxDepth {
			return all, isResult
		}
		i, k := u.by, u.operand
		passed, slice := i.Opcode == "bitcast", 0.0
		switch {
		case passed:
		case k == 0 && (i.Opcode == "slice" || i.Opcode == "dynamic-slice" || i.Opcode == "gather"):
			slice = float64(i.shape.bytes())
		case k == 0 && i.Opcode == "dynamic-update-slice": // updated in place
		case i.Opcode == "fusion":
			slice, passed = a.bytesReadInside(i, uint64(k), all, depth+1)
		default:
			return all, isResult
		}
		bytes += slice
		if passed {
			further, through := a.bytesUsed(c, i, all, depth+1)
			bytes, isResult = bytes+further, isResult || through
		}
	}
	return bytes, isResult
}

// bytesWritten returns the traffic of the results that a fusion writes. If the fusion updates a
// tensor in place, only the updated part counts.
func (a *analyzer) bytesWritten(fusion *Instruction, depth int) traffic {
	if c := fusion.body(); c != nil {
		return a.resultBytes(c.Root, fusion.shape, depth)
	}
	return fusion.shape.in()
}

// resultBytes returns the traffic of writing the result of a fusion. Instruction i in the fusion
// computes the result, which has the given shape.
func (a *analyzer) resultBytes(i *Instruction, shape hloShape, depth int) (t traffic) {
	if i == nil || depth > maxDepth {
		return shape.in()
	}
	switch {
	case i.Opcode == "tuple" && len(i.Operands) == len(shape.elements):
		for k, operand := range i.Operands {
			t = t.plus(a.resultBytes(operand, shape.elements[k], depth+1))
		}
		return t
	case i.Opcode == "bitcast" && len(i.Operands) == 1:
		return a.resultBytes(i.Operands[0], shape, depth+1)
	case i.Opcode == "dynamic-update-slice" && i.operand(1) != nil:
		return shape.moved(float64(i.Operands[1].shape.bytes()))
	case i.Opcode == "fusion" && i.body() != nil:
		return a.resultBytes(i.body().Root, shape, depth+1)
	}
	return shape.in()
}

// eachInside calls visit for an operation. If the operation is a fusion, it calls visit for each
// operation in the fusion instead.
func (a *analyzer) eachInside(i *Instruction, depth int, visit func(*Instruction)) {
	if i.Opcode != "fusion" {
		visit(i)
		return
	}
	if depth > maxDepth {
		return
	}
	for _, c := range i.Called {
		if c == nil {
			continue
		}
		for _, x := range c.Instructions {
			if a.steps++; a.steps > maxSteps {
				a.truncated = true
				return
			}
			a.eachInside(x, depth+1, visit)
		}
	}
}
