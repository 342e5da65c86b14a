package gomlx

import (
	"strings"

	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/lowering"
	"github.com/tpustrategy/tpustrategy/lowering/ir"
	"github.com/tpustrategy/tpustrategy/sharding"
)

// A dataset in memory is an argument of the program that gathers a batch from it. Split over the
// replicas, all of it would be moved for each batch.

// tables says which arguments of a program are only ever read by looking up rows.
func tables(p *lowering.Program) []bool {
	main := p.Main()
	number := map[*ir.Value]int{}
	for i, v := range main.Parameters {
		number[v.Value] = i
	}
	looked, read := make([]bool, len(main.Parameters)), make([]bool, len(main.Parameters))
	for _, s := range main.Body {
		table := -1
		if i, ok := number[first(s)]; ok && rowsOf(s) {
			table, looked[i] = i, true
		}
		at := 0
		s.Reads(func(v *ir.Value) {
			if i, ok := number[v]; ok && (i != table || at > 0) {
				read[i] = true
			}
			at++
		})
	}
	for i := range looked {
		looked[i] = looked[i] && !read[i]
	}
	return looked
}

// first is the first operand of a statement, nil without one.
func first(s *ir.Statement) *ir.Value {
	if len(s.Operands) == 0 {
		return nil
	}
	return s.Operands[0]
}

// rowsOf reports whether a statement looks up rows of its first operand: by dimension 0.
func rowsOf(s *ir.Statement) bool {
	if s.Op != "stablehlo.gather" {
		return false
	}
	numbers := s.Attribute("dimension_numbers")
	return numbers != nil && strings.Contains(string(numbers.Append(nil)), "start_index_map = [0")
}

// placeTable returns the placement of data that rows are looked up in.
func placeTable(dims []int) logical.Placement {
	return logical.Placement{Spec: sharding.Replicated(len(dims)), Why: "a table: any of its rows may be asked for"}
}
