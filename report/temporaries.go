package report

import (
	"cmp"
	"slices"
	"strings"
)

// Temporary describes equal values that an operation of the optimized program writes to a core's
// main memory for other operations, without the arguments and the results of the step. Not all
// temporaries are live at the same time: the compiler's figure is Memory.Temporaries.
type Temporary struct {
	// Operation is the compiler's opcode, such as "fusion". Source is the name of the original
	// operation in the step, or empty.
	Operation string `json:"operation"`
	Source    string `json:"source,omitempty"`
	DType     string `json:"dtype"`
	Shape     []int  `json:"shape"`
	// Bytes is the size of one value on a core, without padding. Count is the number of values.
	Bytes int64 `json:"bytes"`
	Count int   `json:"count"`
	// Line is the line of Go of the value, or nil if it is unknown.
	Line *Line `json:"line,omitempty"`
}

// The limits of the temporaries of a report: their number, and the minimum size in bytes.
const mostTemporaries, leastTemporary = 10, 1 << 10

// Operations whose results share the memory of other values.
var inPlace = map[string]bool{
	"parameter": true, "constant": true, "tuple": true, "get-tuple-element": true, "bitcast": true, "while": true, "conditional": true, "call": true,
	"dynamic-update-slice": true, "opt-barrier": true, "after-all": true, "copy-start": true, "async-start": true, "async-update": true,
	"all-gather-start": true, "all-reduce-start": true, "collective-permute-start": true,
}

// temporaries returns the largest temporaries of the program.
func (m *hloModule) temporaries() []Temporary {
	type kind struct{ operation, source, dtype, shape string }
	var all []Temporary
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
				if s.memory != 0 || s.bytes() < leastTemporary { // in fast memory, or too small
					continue
				}
				t := Temporary{Operation: i.opcode, Source: i.source, DType: elementNames[s.element], Bytes: s.bytes(), Count: 1, Line: lineOf(i.origin)}
				for _, d := range s.dims {
					t.Shape = append(t.Shape, int(d))
				}
				all = append(all, t)
			}
		}
	}
	walk(m.entry, 0)
	all = together(all, func(t Temporary) kind { return kind{t.Operation, t.Source, t.DType, dimsText(t.Shape)} }, func(first *Temporary, _ Temporary) { first.Count++ })
	slices.SortStableFunc(all, func(a, b Temporary) int {
		return cmp.Or(cmp.Compare(b.Bytes, a.Bytes), cmp.Compare(b.Count, a.Count), strings.Compare(a.Source, b.Source))
	})
	return all[:min(len(all), mostTemporaries)]
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
