package gomlx

import (
	"cmp"
	"slices"

	"github.com/tpustrategy/tpustrategy/lowering"
	"github.com/tpustrategy/tpustrategy/lowering/ir"
)

// reach bounds how many values a search for a result's parameter looks at.
const reach = 4096

// pair is a result with a parameter that it may take the place of.
type pair struct{ steps, result, parameter int }

// match says for each result which of the donated parameters it is the next value of, or -1. GoMLX
// does not say: it gives the updated variables as results of the shapes of donated parameters. An
// update is made of the value before it, in few steps, so the nearest parameter is taken, back from
// the result over the values that it is made of.
func match(p *lowering.Program, donated []bool) []int {
	main := p.Main()
	of := make([]int, len(main.Results))
	for i := range of {
		of[i] = -1
	}
	candidate := func(result, parameter int) bool {
		return parameter < len(donated) && donated[parameter] && main.Results[result].Type.Equal(main.Parameters[parameter].Type)
	}
	parameters, made := numbers(main), map[*ir.Value]*ir.Statement{}
	for _, s := range main.Body {
		for _, v := range s.Results {
			made[v] = s
		}
	}
	returned := main.Body[len(main.Body)-1].Operands
	var pairs []pair
	for r := range of {
		if !slices.ContainsFunc(main.Parameters, func(v ir.Parameter) bool { return candidate(r, parameters[v.Value]) }) {
			continue
		}
		pairs = append(pairs, nearest(r, returned[r], made, func(v *ir.Value) (int, bool) {
			i, ok := parameters[v]
			return i, ok && candidate(r, i)
		})...)
	}
	slices.SortFunc(pairs, func(a, b pair) int {
		return cmp.Or(cmp.Compare(a.steps, b.steps), cmp.Compare(a.result, b.result), cmp.Compare(a.parameter, b.parameter))
	})
	taken := make([]bool, len(main.Parameters))
	for _, x := range pairs {
		if of[x.result] < 0 && !taken[x.parameter] {
			of[x.result], taken[x.parameter] = x.parameter, true
		}
	}
	return of
}

// nearest lists the candidates among what a value is made of, with their distances.
func nearest(result int, from *ir.Value, made map[*ir.Value]*ir.Statement, is func(*ir.Value) (int, bool)) (found []pair) {
	seen := map[*ir.Value]bool{from: true}
	for level, steps := []*ir.Value{from}, 0; len(level) > 0 && len(seen) < reach; steps++ {
		var next []*ir.Value
		for _, v := range level {
			if i, ok := is(v); ok {
				found = append(found, pair{steps, result, i})
				continue
			}
			s := made[v]
			if s == nil {
				continue
			}
			for _, operand := range madeOf(s, v) {
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

// madeOf lists the operands of the statement that makes v: of a loop or a barrier the one in v's
// place.
func madeOf(s *ir.Statement, v *ir.Value) []*ir.Value {
	switch s.Op {
	case "stablehlo.while", "stablehlo.optimization_barrier":
		if len(s.Operands) == len(s.Results) {
			i := slices.Index(s.Results, v)
			return s.Operands[i : i+1]
		}
	}
	return s.Operands
}
