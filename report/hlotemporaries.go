package report

import (
	"cmp"
	"slices"
	"strings"

	"github.com/tpustrategy/tpustrategy/report/memory"
)

// Operations whose results share the memory of other values.
var inPlace = map[string]bool{
	"parameter": true, "constant": true, "tuple": true, "get-tuple-element": true, "bitcast": true, "while": true, "conditional": true, "call": true,
	"dynamic-update-slice": true, "opt-barrier": true, "after-all": true, "copy-start": true, "async-start": true, "async-update": true,
	"all-gather-start": true, "all-reduce-start": true, "collective-permute-start": true,
}

// temporaries returns the largest temporaries of the program.
func (m *hloModule) temporaries() []memory.Temporary {
	type kind struct{ operation, source, dtype, shape string }
	var all []memory.Temporary
	seen := map[uint64]bool{}
	var walk func(id uint64, depth int)
	walk = func(id uint64, depth int) {
		c := m.computations[id]
		if c == nil || seen[id] || depth > maxDepth {
			return
		}
		seen[id] = true
		results := c.results()
		for _, i := range c.instructions {
			if i.opcode == "while" || i.opcode == "conditional" || i.opcode == "call" {
				for _, called := range i.called {
					walk(called, depth+1)
				}
			}
			if inPlace[i.opcode] || results[i.id] {
				continue
			}
			for _, s := range i.shape.arrays(nil) {
				if s.memory != 0 || s.bytes() < memory.MinTemporaryBytes { // in fast memory, or too small
					continue
				}
				t := memory.Temporary{Operation: i.opcode, Source: i.source, DType: elementNames[s.element], Bytes: s.bytes(), Count: 1, Line: memory.NewSourceLine(i.origin)}
				for _, d := range s.dims {
					t.Shape = append(t.Shape, int(d))
				}
				all = append(all, t)
			}
		}
	}
	walk(m.entry, 0)
	all = together(all, func(t memory.Temporary) kind { return kind{t.Operation, t.Source, t.DType, dimsText(t.Shape)} }, func(first *memory.Temporary, _ memory.Temporary) { first.Count++ })
	slices.SortStableFunc(all, func(a, b memory.Temporary) int {
		return cmp.Or(cmp.Compare(b.Bytes, a.Bytes), cmp.Compare(b.Count, a.Count), strings.Compare(a.Source, b.Source))
	})
	return all[:min(len(all), memory.MaxTemporaries)]
}

// results returns the values that leave a computation: its root, and the values that share the
// memory of the root.
func (c *hloComputation) results() map[uint64]bool {
	out := map[uint64]bool{}
	var add func(id uint64)
	add = func(id uint64) {
		i := c.byID[id]
		if i == nil || out[id] {
			return
		}
		out[id] = true
		if i.opcode == "tuple" || i.opcode == "bitcast" || i.opcode == "get-tuple-element" {
			for _, operand := range i.operands {
				add(operand)
			}
		}
	}
	add(c.root)
	return out
}

// arrays appends the arrays of a shape to all.
func (s hloShape) arrays(all []hloShape) []hloShape {
	if s.elements == nil {
		return append(all, s)
	}
	for _, e := range s.elements {
		all = e.arrays(all)
	}
	return all
}
