package spmd

import (
	"fmt"
	"slices"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/internal/region"
	"github.com/tpustrategy/tpustrategy/lowering/ir"
)

// A trace contains the forward and backward passes of regions inline and nested. This file replaces
// them by loops, blocks or manual computations, the innermost first. It processes a forward pass
// together with its backward passes, because the values that the backward passes read become
// results of the forward pass.

// passNode is a node of a tree of nested forward and backward passes. The root is the step, and
// each other node is a pass of a region.
type passNode struct {
	*region.Pass
	items []passItem
	// backward contains the backward passes of a forward pass, in the order of the step.
	backward []*passNode
	depth    int
	// defined caches the values for defines. excluded nodes are skipped by mapStatements.
	defined  map[*ir.Value]bool
	excluded bool
}

type passItem struct {
	statement *ir.Statement
	pass      *passNode
}

// outliner replaces the forward and backward passes of a step's regions by loops, blocks and manual
// computations.
type outliner struct {
	assembler *assembler
	function  *ir.Function // a copy of the step, which may grow
	root      *passNode
	// forwardPasses contains the forward passes in the order of the step.
	forwardPasses []*passNode
	// hoisted contains the statements that are moved to the start of the step.
	hoisted []*ir.Statement
	// constants maps a value to the statement that computes it without operands. variation contains
	// the axes over which values vary. Both are set only if there are manual regions.
	constants map[*ir.Value]*ir.Statement
	variation *variationAnalysis
}

// outlinePasses replaces the forward and backward passes of regions by loops, blocks and manual
// computations. It returns the new step, and the new index of each statement or of its replacement.
func (w *assembler) outlinePasses(f *ir.Function, passes []tracedPass) (*ir.Function, []int, error) {
	at := make([]int, len(f.Body)+1)
	if len(passes) == 0 {
		for i := range at {
			at[i] = i
		}
		return f, at, nil
	}
	copied := *f
	a := &outliner{assembler: w, function: &copied}
	if slices.ContainsFunc(passes, tracedPass.isManual) {
		a.variation, a.constants = w.trace.analyzeVariation(f.Body), map[*ir.Value]*ir.Statement{}
		for _, s := range f.Body {
			if isConstant(s) {
				a.constants[s.Results[0]] = s
			}
		}
	}
	begins := a.buildTree(f.Body, passes)
	a.hoistConstants()
	slices.SortStableFunc(a.forwardPasses, func(x, y *passNode) int { return y.depth - x.depth })
	for _, forward := range a.forwardPasses {
		if err := a.writePasses(forward); err != nil {
			return nil, nil, err
		}
	}
	body := slices.Clone(a.hoisted)
	next := 0
	for n, u := range a.root.items {
		for ; next < len(at) && next <= begins[n]; next++ {
			at[next] = len(body)
		}
		body = append(body, u.statements()...)
	}
	for ; next < len(at); next++ {
		at[next] = len(body)
	}
	copied.Body = body
	if err := checkEscapes(&copied); err != nil {
		return nil, nil, err
	}
	return &copied, at, nil
}

// checkEscapes returns an error if the step reads a value of a loop or block that is not one of its
// results, for example through a Go variable.
func checkEscapes(f *ir.Function) error {
	known := map[*ir.Value]bool{}
	for _, p := range f.Parameters {
		known[p.Value] = true
	}
	for _, s := range f.Body {
		var escaped *ir.Value
		s.WalkOperands(func(v *ir.Value) {
			if !known[v] {
				escaped = v
			}
		})
		if escaped != nil {
			return &errkind.Fault{Op: "module:", Subject: fmt.Sprintf("a value of type %s", escaped.Type),
				Reason: "it is computed inside a loop or a block, and used outside",
				Hint:   "return it from the block", Class: errkind.InvalidArgumentError}
		}
		for _, v := range s.Results {
			known[v] = true
		}
	}
	return nil
}

// buildTree creates the tree of the step's forward and backward passes. begins contains the index
// of the first statement of each item of the root.
func (a *outliner) buildTree(body []*ir.Statement, passes []tracedPass) (begins []int) {
	a.root = &passNode{}
	stack, nodes := []*passNode{a.root}, map[*region.Pass]*passNode{}
	ends := []int{len(body)}
	for i := 0; i <= len(body); i++ {
		for len(stack) > 1 && ends[len(ends)-1] <= i {
			stack, ends = stack[:len(stack)-1], ends[:len(ends)-1]
		}
		for len(passes) > 0 && passes[0].begin == i {
			p := &passNode{Pass: passes[0].Pass, depth: len(stack)}
			nodes[p.Pass] = p
			if p.Forward == nil {
				a.forwardPasses = append(a.forwardPasses, p)
			} else {
				forward := nodes[p.Forward]
				forward.backward = append(forward.backward, p)
			}
			if len(stack) == 1 {
				begins = append(begins, i)
			}
			parent := stack[len(stack)-1]
			parent.items = append(parent.items, passItem{pass: p})
			if passes[0].end > i {
				stack, ends = append(stack, p), append(ends, passes[0].end)
			}
			passes = passes[1:]
		}
		if i < len(body) {
			if len(stack) == 1 {
				begins = append(begins, i)
			}
			parent := stack[len(stack)-1]
			parent.items = append(parent.items, passItem{statement: body[i]})
		}
	}
	return begins
}

// hoistConstants moves constants that several passes read to the start of the step. GoMLX creates a
// constant once, in the first pass that uses it.
func (a *outliner) hoistConstants() {
	definedIn := map[*ir.Value]*passNode{}
	a.walk(a.root, func(in *passNode, s *ir.Statement) {
		if in != a.root && isConstant(s) {
			definedIn[s.Results[0]] = in
		}
	})
	moved := map[*ir.Value]bool{}
	a.walk(a.root, func(in *passNode, s *ir.Statement) {
		s.WalkOperands(func(v *ir.Value) {
			if at := definedIn[v]; at != nil && at != in {
				moved[v] = true
			}
		})
	})
	if len(moved) == 0 {
		return
	}
	var remove func(p *passNode)
	remove = func(p *passNode) {
		p.items = slices.DeleteFunc(p.items, func(u passItem) bool {
			if u.pass != nil {
				remove(u.pass)
				return false
			}
			if isConstant(u.statement) && moved[u.statement.Results[0]] {
				a.hoisted = append(a.hoisted, u.statement)
				return true
			}
			return false
		})
	}
	for _, u := range a.root.items {
		if u.pass != nil {
			remove(u.pass)
		}
	}
}

// isConstant reports whether a statement computes a single value without operands.
func isConstant(s *ir.Statement) bool {
	return len(s.Operands) == 0 && len(s.Regions) == 0 && len(s.Results) == 1 && s.Placeholder == nil
}

// walk calls yield for each statement of a pass and of nested passes, in order.
func (a *outliner) walk(p *passNode, yield func(in *passNode, s *ir.Statement)) {
	for _, u := range p.items {
		if u.pass != nil {
			a.walk(u.pass, yield)
		} else {
			yield(p, u.statement)
		}
	}
}

func (u passItem) statements() []*ir.Statement {
	if u.pass != nil {
		return u.pass.statements()
	}
	return []*ir.Statement{u.statement}
}

func (p *passNode) statements() (all []*ir.Statement) {
	for _, u := range p.items {
		all = append(all, u.statements()...)
	}
	return all
}

// removeUnused removes the unused statements of a backward pass, so that the forward pass keeps no
// values for them. For example, GoMLX takes the gradient of a sum of the results, and the sum
// itself is unused.
func (a *outliner) removeUnused(p *passNode) {
	live := map[*ir.Value]bool{}
	for _, v := range a.innerResults(p) {
		live[v] = true
	}
	var rest []*ir.Statement
	for _, s := range slices.Backward(p.statements()) {
		m, argument := s.Placeholder.(argumentPlaceholder)
		if argument = argument && m.pass == p.Pass; argument || slices.ContainsFunc(s.Results,
			func(v *ir.Value) bool { return live[v] }) {
			s.WalkOperands(func(v *ir.Value) { live[v] = true })
			rest = append(rest, s)
		}
	}
	slices.Reverse(rest)
	p.setStatements(rest)
}

func (p *passNode) setStatements(all []*ir.Statement) {
	p.items = nil
	p.appendStatements(all...)
}

func (p *passNode) appendStatements(all ...*ir.Statement) {
	for _, s := range all {
		p.items = append(p.items, passItem{statement: s})
	}
}

// writePasses lowers a forward pass and its backward passes. The passes nested in them must already
// be lowered.
func (a *outliner) writePasses(forward *passNode) error {
	forward.backward = slices.DeleteFunc(forward.backward, a.removeIfUnused)
	if a.removeIfUnused(forward) {
		return nil
	}
	for _, p := range forward.backward {
		a.removeUnused(p)
	}
	switch forward.Kind.(type) {
	case region.Loop:
		a.writeLoop(forward)
	case region.Block:
		a.writeBlock(forward)
	case region.Manual:
		return a.writeManual(forward)
	case region.On:
		return a.writeDeviceRegion(forward)
	}
	return nil
}

// removeIfUnused removes a pass that has no results because a panic interrupted its trace. It
// reports whether it removed the pass.
func (a *outliner) removeIfUnused(p *passNode) bool {
	if slices.ContainsFunc(a.innerResults(p), func(v *ir.Value) bool { return v != nil }) {
		return false
	}
	p.items = nil
	return true
}

// replaceResults replaces the placeholder of each result i of a pass by a copy of values[i].
func (a *outliner) replaceResults(p *passNode, values []*ir.Value) {
	a.mapStatements(func(s *ir.Statement) *ir.Statement {
		if m, ok := s.Placeholder.(resultPlaceholder); ok && m.pass == p.Pass {
			return copyOp(s.Results[0], values[m.index])
		}
		return s
	})
}

// innerResults returns the results of a pass, as values inside the pass. An unused result is nil.
func (a *outliner) innerResults(p *passNode) []*ir.Value {
	all := make([]*ir.Value, len(p.Out))
	a.walk(a.root, func(_ *passNode, s *ir.Statement) {
		if m, ok := s.Placeholder.(resultPlaceholder); ok && m.pass == p.Pass {
			all[m.index] = s.Operands[0]
		}
	})
	return all
}

// mapStatements replaces each statement of the step by the result of f, except in excluded passes.
func (a *outliner) mapStatements(f func(s *ir.Statement) *ir.Statement) {
	var visit func(p *passNode)
	visit = func(p *passNode) {
		if p.excluded {
			return
		}
		for i, u := range p.items {
			if u.pass != nil {
				visit(u.pass)
			} else {
				p.items[i].statement = f(u.statement)
			}
		}
	}
	visit(a.root)
}

// readValues returns the set of results and values that the statements of a pass read.
func (p *passNode) readValues(results []*ir.Value) map[*ir.Value]bool {
	all := map[*ir.Value]bool{}
	for _, v := range results {
		all[v] = true
	}
	_, _, rest := p.arguments()
	for _, s := range rest {
		s.WalkOperands(func(v *ir.Value) { all[v] = true })
	}
	return all
}

// arguments returns the arguments of a pass, as values inside and outside the pass, and the
// statements of the pass without its argument placeholders. An argument that the pass does not read
// is nil.
func (p *passNode) arguments() (inside, outside []*ir.Value, rest []*ir.Statement) {
	inside, outside = make([]*ir.Value, len(p.In)), make([]*ir.Value, len(p.In))
	for _, s := range p.statements() {
		if m, ok := s.Placeholder.(argumentPlaceholder); ok && m.pass == p.Pass {
			inside[m.index], outside[m.index] = s.Results[0], s.Operands[0]
			continue
		}
		rest = append(rest, s)
	}
	return inside, outside, rest
}
