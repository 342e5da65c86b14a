package gomlx

import (
	"fmt"
	"slices"
	"strings"

	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/lowering"
	"github.com/tpustrategy/tpustrategy/lowering/ir"
	"github.com/tpustrategy/tpustrategy/sharding"
)

// isVariable reports whether a parameter is a variable. GoMLX names a variable by its path, which
// begins with a slash.
func isVariable(name string) bool { return strings.HasPrefix(name, "/") }

// PlaceData returns the placement of a parameter that is not a variable: dimension 0 is sharded
// over the replicas if their number divides it; otherwise the parameter is replicated.
func PlaceData(mesh sharding.Mesh, dims []int) logical.ExplainedSpec {
	p := logical.ExplainedSpec{Spec: sharding.Replicated(len(dims))}
	replicas, _ := mesh.AxisSize(logical.ReplicaAxis)
	switch {
	case len(dims) == 0:
		p.RuleText = "a scalar"
	case replicas < 2:
		p.RuleText = "one replica"
	case dims[0]%replicas != 0 || dims[0] == 0:
		p.RuleText = "data"
		p.UnsplitReason = fmt.Sprintf("dimension 0 of size %d is not divisible by replica=%d", dims[0], replicas)
	default:
		split := make([]sharding.Dim, len(dims))
		split[0].Axes = []string{logical.ReplicaAxis}
		p.Spec, p.RuleText = sharding.NewSpec(split...), "data"
	}
	return p
}

// gatheredSpec returns the spec of a variable after it was gathered over the replicas, or nil if
// the tensor is not gathered. A program gathers a variable that is sharded over the replicas before
// it reads the variable. Otherwise the partitioner would gather the activations, which are much
// larger and sharded over the replicas too. Optimizer state is not gathered, because it is updated
// in sharded form.
func gatheredSpec(name string, spec sharding.Spec) *sharding.Spec {
	if logical.OwnerOfState(name, nil) != "" || !isVariable(name) ||
		!slices.Contains(spec.UsedAxes(), logical.ReplicaAxis) {
		return nil
	}
	dims := spec.Dims()
	for i := range dims {
		dims[i].Axes = slices.DeleteFunc(dims[i].Axes, func(axis string) bool { return axis == logical.ReplicaAxis })
	}
	gathered := sharding.NewSpec(dims...)
	return &gathered
}

// findGatherTables reports, for each argument of a program, whether the program only gathers rows
// from the argument, as from a GoMLX dataset in memory. If such a table were sharded over the
// replicas, each batch would transfer the complete dataset.
func findGatherTables(p *lowering.Program) []bool {
	main := p.Main()
	indices := parameterIndices(main)
	isTable, isRead := make([]bool, len(main.Parameters)), make([]bool, len(main.Parameters))
	for _, s := range main.Body {
		table := -1
		if isRowGather(s) {
			if i, ok := indices[s.Operands[0]]; ok {
				table, isTable[i] = i, true
			}
		}
		at := 0
		s.WalkOperands(func(v *ir.Value) {
			if i, ok := indices[v]; ok && (i != table || at > 0) {
				isRead[i] = true
			}
			at++
		})
	}
	for i := range isTable {
		isTable[i] = isTable[i] && !isRead[i]
	}
	return isTable
}

func parameterIndices(f *ir.Function) map[*ir.Value]int {
	indices := map[*ir.Value]int{}
	for i, v := range f.Parameters {
		indices[v.Value] = i
	}
	return indices
}

// isRowGather reports whether a statement gathers rows, along dimension 0, of its first operand.
func isRowGather(s *ir.Statement) bool {
	if s.Op != "stablehlo.gather" {
		return false
	}
	numbers := s.Attribute("dimension_numbers")
	return numbers != nil && strings.Contains(string(numbers.Append(nil)), "start_index_map = [0")
}
