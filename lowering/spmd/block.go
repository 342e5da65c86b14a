package spmd

import (
	"slices"

	"github.com/tpustrategy/tpustrategy/internal/region"
	"github.com/tpustrategy/tpustrategy/lowering"
	"github.com/tpustrategy/tpustrategy/lowering/ir"
)

// block writes the passes of a block inline. A backward pass recomputes the values that are not
// kept, behind an optimization barrier: without the barrier a compiler would detect that the values
// equal the values of the forward pass, and keep those.
func (a *outline) block(forward *part) {
	k := newKeeper(a.f, forward, forward.Kind.(region.Block).Keep)
	for v := range k.made {
		k.given[v] = flowing
	}
	for _, p := range forward.backward {
		if k.keep.Some {
			a.recompute(k, p)
		} else {
			a.inline(p)
		}
	}
	a.inline(forward)
}

// inline removes the marks of a pass's arguments and results.
func (a *outline) inline(p *part) {
	all := p.statements()
	for i, s := range all {
		if m, ok := s.Mark.(entryMark); ok && m.pass == p.Pass {
			all[i] = unchanged(s.Results[0], s.Operands[0])
		}
	}
	p.set(all)
	a.results(p, a.insides(p))
}

// recompute makes the values of the forward pass available that a backward pass reads.
func (a *outline) recompute(k *keeper, p *part) {
	// Recomputation starts from values of the forward pass, after the adjoints are available.
	var from, behind []*ir.Value
	r := &remake{keeper: k, has: map[*ir.Value]*ir.Value{}}
	barred := map[*ir.Value]*ir.Value{}
	r.read = func(v *ir.Value) *ir.Value {
		if barred[v] == nil {
			barred[v] = a.f.Like(v)
			from, behind = append(from, v), append(behind, barred[v])
		}
		return barred[v]
	}
	var again, rest []*ir.Statement
	all := p.statements()
	for i, s := range all {
		all[i] = s.Reading(r.value)
	}
	again, r.body = r.body, nil
	// Values from outside the block that only recomputed statements read need the barrier too.
	local := map[*ir.Value]bool{}
	for _, v := range behind {
		local[v] = true
	}
	for i, s := range again {
		again[i] = a.barred(s, local, r.read)
		for _, v := range s.Results {
			local[v] = true
		}
	}
	if len(again) > 0 {
		for i, s := range all {
			m, ok := s.Mark.(entryMark)
			if !ok || m.pass != p.Pass {
				continue
			}
			adjoint := a.f.Fresh(s.Operands[0].Type)
			from, behind = append(from, s.Operands[0]), append(behind, adjoint)
			copied := *s
			copied.Operands = []*ir.Value{adjoint}
			all[i] = &copied
		}
		rest = append(rest, &ir.Statement{Op: "stablehlo.optimization_barrier", Operands: from, Results: behind, Form: ir.Inline})
	} else if len(from) > 0 { // no recomputation: no barrier
		for i, v := range from {
			rest = append(rest, unchanged(behind[i], v))
		}
	}
	p.set(slices.Concat(rest, again, all))
	if len(again) > 0 && a.w.trace.opts.Target == lowering.TargetCPU {
		a.branch(p, len(rest))
		return
	}
	a.inline(p)
}

// branch moves a backward pass into a conditional branch that is always taken. The CPU compiler
// removes barriers before common subexpression elimination and scheduling, and would then keep the
// values instead of recomputing them. It does not look into a branch, and treats a condition behind
// a barrier as unknown.
func (a *outline) branch(p *part, barrier int) {
	all := p.statements()
	bar := *all[barrier-1]
	always, taken := a.f.Fresh(int32s), a.f.Fresh(int32s)
	bar.Operands, bar.Results = append(slices.Clone(bar.Operands), always), append(slices.Clone(bar.Results), taken)
	gives := a.insides(p)
	var results, zeros []*ir.Value
	var run []*ir.Statement
	for _, s := range all[barrier:] {
		if m, ok := s.Mark.(entryMark); ok && m.pass == p.Pass {
			s = unchanged(s.Results[0], s.Operands[0])
		}
		run = append(run, s)
	}
	given := make([]*ir.Value, len(gives))
	for _, v := range gives {
		if v != nil {
			results, zeros = append(results, v), append(zeros, a.f.Fresh(v.Type))
		}
	}
	branches := where0(taken, a.f.Fresh(ir.Type{}).Name, run, results, zeros)
	made := branches.Results
	for i, v := range gives {
		if v != nil {
			given[i], made = made[0], made[1:]
		}
	}
	p.set(append(slices.Clone(all[:barrier-1]), constant(always, ir.Integer(0)), &bar, branches))
	a.results(p, given)
}

// barred returns a statement whose operands from outside pass through the barrier.
func (a *outline) barred(s *ir.Statement, local map[*ir.Value]bool, bar func(v *ir.Value) *ir.Value) *ir.Statement {
	copied := *s
	copied.Operands = slices.Clone(s.Operands)
	for i, v := range s.Operands {
		if !local[v] {
			copied.Operands[i] = bar(v)
			local[copied.Operands[i]] = true
		}
	}
	return &copied
}
