package spmd

import (
	"slices"

	"github.com/tpustrategy/tpustrategy/internal/region"
	"github.com/tpustrategy/tpustrategy/lowering"
	"github.com/tpustrategy/tpustrategy/lowering/ir"
)

// writeBlock writes the passes of a block inline. A backward pass recomputes the values that are not
// kept, behind an optimization barrier: without the barrier a compiler would detect that the values
// equal the values of the forward pass, and keep those.
func (a *outliner) writeBlock(forward *passNode) {
	k := newRematerializer(a.function, forward, forward.Kind.(region.Block).Policy)
	for v := range k.definitions {
		k.dependence[v] = carriedState
	}
	for _, p := range forward.backward {
		if k.policy.Selective {
			a.recomputeForward(k, p)
		} else {
			a.inlinePass(p)
		}
	}
	a.inlinePass(forward)
}

// inlinePass removes the marks of a pass's arguments and results.
func (a *outliner) inlinePass(p *passNode) {
	all := p.statements()
	for i, s := range all {
		if m, ok := s.Mark.(entryMark); ok && m.pass == p.Pass {
			all[i] = copyOp(s.Results[0], s.Operands[0])
		}
	}
	p.setStatements(all)
	a.replaceResults(p, a.innerResults(p))
}

// recomputeForward makes the values of the forward pass available that a backward pass reads.
func (a *outliner) recomputeForward(k *rematerializer, p *passNode) {
	// Recomputation starts from values of the forward pass, after the adjoints are available.
	var from, behind []*ir.Value
	r := &recomputation{rematerializer: k, replacements: map[*ir.Value]*ir.Value{}}
	barred := map[*ir.Value]*ir.Value{}
	r.load = func(v *ir.Value) *ir.Value {
		if barred[v] == nil {
			barred[v] = a.function.NewValueLike(v)
			from, behind = append(from, v), append(behind, barred[v])
		}
		return barred[v]
	}
	var again, rest []*ir.Statement
	all := p.statements()
	for i, s := range all {
		all[i] = s.ReplaceOperands(r.value)
	}
	again, r.body = r.body, nil
	// Values from outside the block that only recomputed statements read need the barrier too.
	local := map[*ir.Value]bool{}
	for _, v := range behind {
		local[v] = true
	}
	for i, s := range again {
		again[i] = a.passThroughBarrier(s, local, r.load)
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
			adjoint := a.function.NewValue(s.Operands[0].Type)
			from, behind = append(from, s.Operands[0]), append(behind, adjoint)
			copied := *s
			copied.Operands = []*ir.Value{adjoint}
			all[i] = &copied
		}
		rest = append(rest, &ir.Statement{Op: "stablehlo.optimization_barrier", Operands: from, Results: behind, Form: ir.Generic})
	} else if len(from) > 0 { // no recomputation: no barrier
		for i, v := range from {
			rest = append(rest, copyOp(behind[i], v))
		}
	}
	p.setStatements(slices.Concat(rest, again, all))
	if len(again) > 0 && a.assembler.trace.opts.Target == lowering.TargetCPU {
		a.wrapInBranch(p, len(rest))
		return
	}
	a.inlinePass(p)
}

// wrapInBranch moves a backward pass into a conditional branch that is always taken. The CPU compiler
// removes barriers before common subexpression elimination and scheduling, and would then keep the
// values instead of recomputing them. It does not look into a branch, and treats a condition behind
// a barrier as unknown.
func (a *outliner) wrapInBranch(p *passNode, barrier int) {
	all := p.statements()
	bar := *all[barrier-1]
	always, taken := a.function.NewValue(int32Scalar), a.function.NewValue(int32Scalar)
	bar.Operands, bar.Results = append(slices.Clone(bar.Operands), always), append(slices.Clone(bar.Results), taken)
	gives := a.innerResults(p)
	var results, zeros []*ir.Value
	var run []*ir.Statement
	for _, s := range all[barrier:] {
		if m, ok := s.Mark.(entryMark); ok && m.pass == p.Pass {
			s = copyOp(s.Results[0], s.Operands[0])
		}
		run = append(run, s)
	}
	given := make([]*ir.Value, len(gives))
	for _, v := range gives {
		if v != nil {
			results, zeros = append(results, v), append(zeros, a.function.NewValue(v.Type))
		}
	}
	branches := caseZeroOp(taken, a.function.NewValue(ir.Type{}).Name, run, results, zeros)
	made := branches.Results
	for i, v := range gives {
		if v != nil {
			given[i], made = made[0], made[1:]
		}
	}
	p.setStatements(append(slices.Clone(all[:barrier-1]), constantOp(always, ir.Integer(0)), &bar, branches))
	a.replaceResults(p, given)
}

// passThroughBarrier returns a statement whose operands from outside pass through the barrier.
func (a *outliner) passThroughBarrier(s *ir.Statement, local map[*ir.Value]bool, bar func(v *ir.Value) *ir.Value) *ir.Statement {
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
