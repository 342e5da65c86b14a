package spmd

import (
	"slices"

	"github.com/tpustrategy/tpustrategy/internal/region"
	"github.com/tpustrategy/tpustrategy/lowering"
	"github.com/tpustrategy/tpustrategy/lowering/ir"
)

// writeBlock lowers a rematerialized block: it adds the ops of the forward and backward passes to
// the step. A backward pass recomputes values behind an optimization barrier. Without the barrier,
// a compiler would replace the recomputed values by the values of the forward pass and keep them in
// memory.
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

// inlinePass inlines a pass into the step. It replaces the placeholders of the pass's arguments and
// results by copies.
func (a *outliner) inlinePass(p *passNode) {
	all := p.statements()
	for i, s := range all {
		if m, ok := s.Placeholder.(argumentPlaceholder); ok && m.pass == p.Pass {
			all[i] = copyOp(s.Results[0], s.Operands[0])
		}
	}
	p.setStatements(all)
	a.replaceResults(p, a.innerResults(p))
}

// recomputeForward adds the ops that recompute values of the forward pass to a backward pass.
func (a *outliner) recomputeForward(k *rematerializer, p *passNode) {
	// Recomputation starts from values of the forward pass, after the adjoints are available.
	var barrierOperands, barrierResults []*ir.Value
	r := &recomputation{rematerializer: k, replacements: map[*ir.Value]*ir.Value{}}
	afterBarrier := map[*ir.Value]*ir.Value{}
	r.load = func(v *ir.Value) *ir.Value {
		if afterBarrier[v] == nil {
			afterBarrier[v] = a.function.NewValueLike(v)
			barrierOperands, barrierResults = append(barrierOperands, v), append(barrierResults, afterBarrier[v])
		}
		return afterBarrier[v]
	}
	var recomputed, rest []*ir.Statement
	all := p.statements()
	for i, s := range all {
		all[i] = s.ReplaceOperands(r.backwardValue)
	}
	recomputed, r.body = r.body, nil
	// Values from outside the block that only recomputed statements read need the barrier too.
	local := map[*ir.Value]bool{}
	for _, v := range barrierResults {
		local[v] = true
	}
	for i, s := range recomputed {
		recomputed[i] = a.passThroughBarrier(s, local, r.load)
		for _, v := range s.Results {
			local[v] = true
		}
	}
	if len(recomputed) > 0 {
		for i, s := range all {
			m, ok := s.Placeholder.(argumentPlaceholder)
			if !ok || m.pass != p.Pass {
				continue
			}
			adjoint := a.function.NewValue(s.Operands[0].Type)
			barrierOperands, barrierResults = append(barrierOperands, s.Operands[0]), append(barrierResults, adjoint)
			copied := *s
			copied.Operands = []*ir.Value{adjoint}
			all[i] = &copied
		}
		rest = append(rest, &ir.Statement{Op: "stablehlo.optimization_barrier", Operands: barrierOperands,
			Results: barrierResults, Form: ir.Generic})
	} else if len(barrierOperands) > 0 { // no recomputation: no barrier
		for i, v := range barrierOperands {
			rest = append(rest, copyOp(barrierResults[i], v))
		}
	}
	p.setStatements(slices.Concat(rest, recomputed, all))
	if len(recomputed) > 0 && a.assembler.trace.opts.Target == lowering.TargetCPU {
		a.wrapInBranch(p, len(rest))
		return
	}
	a.inlinePass(p)
}

// wrapInBranch moves a backward pass into a conditional branch that is always taken. The CPU
// compiler removes barriers before it merges common subexpressions, and would keep values instead
// of recomputing them. It does not optimize across a branch if the condition is unknown because of
// a barrier.
func (a *outliner) wrapInBranch(p *passNode, start int) {
	all := p.statements()
	barrier := *all[start-1]
	always, taken := a.function.NewValue(int32Scalar), a.function.NewValue(int32Scalar)
	barrier.Operands, barrier.Results = append(slices.Clone(barrier.Operands), always),
		append(slices.Clone(barrier.Results), taken)
	inner := a.innerResults(p)
	var results, zeros []*ir.Value
	var branch []*ir.Statement
	for _, s := range all[start:] {
		if m, ok := s.Placeholder.(argumentPlaceholder); ok && m.pass == p.Pass {
			s = copyOp(s.Results[0], s.Operands[0])
		}
		branch = append(branch, s)
	}
	outer := make([]*ir.Value, len(inner))
	for _, v := range inner {
		if v != nil {
			results, zeros = append(results, v), append(zeros, a.function.NewValue(v.Type))
		}
	}
	branches := caseZeroOp(taken, a.function.NewValue(ir.Type{}).Name, branch, results, zeros)
	branchResults := branches.Results
	for i, v := range inner {
		if v != nil {
			outer[i], branchResults = branchResults[0], branchResults[1:]
		}
	}
	p.setStatements(append(slices.Clone(all[:start-1]), constantOp(always, ir.Integer(0)), &barrier, branches))
	a.replaceResults(p, outer)
}

// passThroughBarrier returns s with each operand that is not in local replaced by barrier(operand).
func (a *outliner) passThroughBarrier(s *ir.Statement, local map[*ir.Value]bool,
	barrier func(v *ir.Value) *ir.Value) *ir.Statement {
	copied := *s
	copied.Operands = slices.Clone(s.Operands)
	for i, v := range s.Operands {
		if !local[v] {
			copied.Operands[i] = barrier(v)
			local[copied.Operands[i]] = true
		}
	}
	return &copied
}
