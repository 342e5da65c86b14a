package gomlx

import (
	"cmp"
	"slices"

	"github.com/tpustrategy/tpustrategy/lowering"
	"github.com/tpustrategy/tpustrategy/lowering/ir"
)

const maxVisited = 4096

// matchCandidate contains the indices of a result and of a donated parameter that the result may
// update. steps is the number of statements between them.
type matchCandidate struct{ steps, result, parameter int }

// matchDonated returns for each result the index of the donated parameter that the result updates,
// or -1. GoMLX does not specify this, but it returns updated variables as results with the shapes
// of donated parameters. An update is computed from the previous value in few statements.
// Therefore, matchDonated searches backward from each result through its operands and selects the
// nearest parameter with the same type.
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
	var candidates []matchCandidate
	for r := range donors {
		if !slices.ContainsFunc(main.Parameters, func(v ir.Parameter) bool { return candidate(r, parameters[v.Value]) }) {
			continue
		}
		candidates = append(candidates, nearestParameters(r, returned[r], producers, func(v *ir.Value) (int, bool) {
			i, ok := parameters[v]
			return i, ok && candidate(r, i)
		})...)
	}
	slices.SortFunc(candidates, func(a, b matchCandidate) int {
		return cmp.Or(cmp.Compare(a.steps, b.steps), cmp.Compare(a.result, b.result), cmp.Compare(a.parameter, b.parameter))
	})
	taken := make([]bool, len(main.Parameters))
	for _, x := range candidates {
		if donors[x.result] < 0 && !taken[x.parameter] {
			donors[x.result], taken[x.parameter] = x.parameter, true
		}
	}
	return donors
}

// nearestParameters searches backward from start, the value of a result, and returns the parameters
// that the result may update, nearest first. parameterOf returns the index of a parameter, or false
// if a value is not a parameter that can be updated.
func nearestParameters(result int, start *ir.Value, producers map[*ir.Value]*ir.Statement,
	parameterOf func(*ir.Value) (int, bool)) (found []matchCandidate) {
	seen := map[*ir.Value]bool{start: true}
	for level, steps := []*ir.Value{start}, 0; len(level) > 0 && len(seen) < maxVisited; steps++ {
		var next []*ir.Value
		for _, v := range level {
			if i, ok := parameterOf(v); ok {
				found = append(found, matchCandidate{steps, result, i})
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

// producerOperands returns the operands from which statement s computes v. For a loop or a barrier,
// this is only the operand with the index of v.
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
