package report

import (
	"cmp"
	"slices"
	"strings"

	"github.com/tpustrategy/tpustrategy/report/hlo"
	"github.com/tpustrategy/tpustrategy/report/memory"
)

// sharesMemory are the operations whose results share the memory of other values.
var sharesMemory = map[string]bool{
	"parameter": true, "constant": true, "tuple": true, "get-tuple-element": true, "bitcast": true, "while": true,
	"conditional": true, "call": true,
	"dynamic-update-slice": true, "opt-barrier": true, "after-all": true, "copy-start": true, "async-start": true,
	"async-update":     true,
	"all-gather-start": true, "all-reduce-start": true, "collective-permute-start": true,
}

func temporaries(p *hlo.Program) []memory.Temporary {
	type kind struct{ operation, source, dtype, shape string }
	var all []memory.Temporary
	seen := map[*hlo.Computation]bool{}
	var walk func(c *hlo.Computation, depth int)
	walk = func(c *hlo.Computation, depth int) {
		if c == nil || seen[c] || depth > maxDepth {
			return
		}
		seen[c] = true
		results := resultValues(c)
		for _, i := range c.Instructions {
			if i.Opcode == "while" || i.Opcode == "conditional" || i.Opcode == "call" {
				for _, called := range i.Called {
					walk(called, depth+1)
				}
			}
			if sharesMemory[i.Opcode] || results[i] {
				continue
			}
			for _, a := range i.Arrays {
				if a.Memory != 0 || a.Bytes < memory.MinTemporaryBytes { // in fast memory, or too small
					continue
				}
				all = append(all, memory.Temporary{Operation: i.Opcode, Source: i.Source, DType: a.DType, Shape: intDims(a.Dims),
					Bytes: a.Bytes, Count: 1, Line: memory.NewSourceLine(i.Origin)})
			}
		}
	}
	walk(p.Entry, 0)
	all = groupBy(all, func(t memory.Temporary) kind { return kind{t.Operation, t.Source, t.DType, dimsText(t.Shape)} },
		func(first *memory.Temporary, _ memory.Temporary) { first.Count++ })
	slices.SortStableFunc(all, func(a, b memory.Temporary) int {
		return cmp.Or(cmp.Compare(b.Bytes, a.Bytes), cmp.Compare(b.Count, a.Count), strings.Compare(a.Source, b.Source))
	})
	return all[:min(len(all), memory.MaxTemporaries)]
}

// resultValues returns the root of a computation, and the values that share memory with the root.
// They are not temporaries, because the caller uses them.
func resultValues(c *hlo.Computation) map[*hlo.Instruction]bool {
	out := map[*hlo.Instruction]bool{}
	var add func(i *hlo.Instruction)
	add = func(i *hlo.Instruction) {
		if i == nil || out[i] {
			return
		}
		out[i] = true
		if i.Opcode == "tuple" || i.Opcode == "bitcast" || i.Opcode == "get-tuple-element" {
			for _, operand := range i.Operands {
				add(operand)
			}
		}
	}
	add(c.Root)
	return out
}

func intDims(dims []uint64) (out []int) {
	for _, d := range dims {
		out = append(out, int(d))
	}
	return out
}
