package gomlx

import (
	"cmp"
	"slices"

	"github.com/tpustrategy/tpustrategy/lowering"
	"github.com/tpustrategy/tpustrategy/lowering/ir"
)

// maxVisited is the maximum number of values that the search for one result visits.
const maxVisited = 4096

// pair is a result and a candidate parameter, with their distance in statements.
type pair struct{ steps, result, parameter int }

// matchDonated returns for each result the index of the donated parameter of which it is the next
// value, or -1. GoMLX does not specify this; it returns updated variables as results with the
// shapes of donated parameters. An update is computed from the previous value in few statements, so
// match selects the nearest parameter with the same type, searching backward from the result
// through its operands.
func matchDonated(p *lowering.Program, donated []bool) []int {
	main := p.Main()
	donors := make([]int, len(main.Results))
	for i := range donors {
		donors[i] = -1
	}
	candidate := func(result, parameter int) bool {
		return parameter < len(donated) && donated[parameter] &&
			main.Results[result].Type.Equal(main.Parameters[parameter].Type)
	}
	parameters, producers := parameterIndices(main), map[*ir.Value]*ir.Statement{}
	for _, s := range main.Body {
		for _, v := range s.Results {
			producers[v] = s
		}
	}
	returned := main.Body[len(main.Body)-1].Operands
	var pairs []pair
	for r := range donors {
		if !slices.ContainsFunc(main.Parameters, func(v ir.Parameter) bool { return candidate(r, parameters[v.Value]) }) {
			continue
		}
		pairs = append(pairs, nearestParameters(r, returned[r], producers, func(v *ir.Value) (int, bool) {
			i, ok := parameters[v]
			return i, ok && candidate(r, i)
		})...)
	}
	slices.SortFunc(pairs, func(a, b pair) int {
		return cmp.Or(cmp.Compare(a.steps, b.steps), cmp.Compare(a.result, b.result), cmp.Compare(a.parameter, b.parameter))
	})
	taken := make([]bool, len(main.Parameters))
	for _, x := range pairs {
		if donors[x.result] < 0 && !taken[x.parameter] {
			donors[x.result], taken[x.parameter] = x.parameter, true
		}
	}
	return donors
}

// nearestParameters returns the candidates among the direct and indirect operands of a value, with
// their distances.
func nearestParameters(result int, start *ir.Value, producers map[*ir.Value]*ir.Statement,
	parameterOf func(*ir.Value) (int, bool)) (found []pair) {
	seen := map[*ir.Value]bool{start: true}
	for level, steps := []*ir.Value{start}, 0; len(level) > 0 && len(seen) < maxVisited; steps++ {
		var next []*ir.Value
		for _, v := range level {
			if i, ok := parameterOf(v); ok {
				found = append(found, pair{steps, result, i})
				continue
			}
			s := producers[v]
			if s == nil {
				continue
			}
			for _, operand := range producerOperands(s, v) {
				if !seen[operand] {
					seen[operand] = true
					next = append(next, operand)
				}
			}
		}
		level = next
	}
	return found
}

// producerOperands returns the operands of the statement s that computes v. For a loop or a
// barrier, it returns only the operand with the index of v.
func producerOperands(s *ir.Statement, v *ir.Value) []*ir.Value {
	switch s.Op {
	case "stablehlo.while", "stablehlo.optimization_barrier":
		if len(s.Operands) == len(s.Results) {
			i := slices.Index(s.Results, v)
			return s.Operands[i : i+1]
		}
	}
	return s.Operands
}
