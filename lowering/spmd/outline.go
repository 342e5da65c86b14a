package spmd

import (
	"fmt"
	"slices"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/internal/region"
	"github.com/tpustrategy/tpustrategy/lowering/ir"
)

// The passes through a step's regions are traced inline and nested. This file moves them into
// separate functions, the innermost first. A forward pass is processed together with its backward
// passes, because the values that the backward passes read determine the results of the forward
// pass.

// part is a list of statements that may contain other parts: the step, or a pass.
type part struct {
	*region.Pass
	units []unit
	// backward are the backward passes of a forward pass, in step order.
	backward []*part
	depth    int
	// own are the values defined inside, see makes. excluded is set while other parts are searched.
	own      map[*ir.Value]bool
	excluded bool
}

// unit is a statement or a part.
type unit struct {
	statement *ir.Statement
	part      *part
}

// outline moves the passes of a step into separate functions.
type outline struct {
	w    *writer
	f    *ir.Function // a copy of the step, which may grow
	root *part
	// groups are the forward passes in step order.
	groups []*part
	// first are statements that are moved to the start of the step.
	first []*ir.Statement
	// constants maps a value to the statement that computes it without operands. vary contains the
	// variation over devices, if there are manual regions.
	constants map[*ir.Value]*ir.Statement
	vary      *variation
}

// outline returns the step without passes, and the new index of each statement: element i is the
// index of statement i of the step, or of its replacement.
func (w *writer) outline(f *ir.Function, passes []pass) (*ir.Function, []int, error) {
	at := make([]int, len(f.Body)+1)
	if len(passes) == 0 {
		for i := range at {
			at[i] = i
		}
		return f, at, nil
	}
	copied := *f
	a := &outline{w: w, f: &copied}
	if slices.ContainsFunc(passes, pass.manual) {
		a.vary, a.constants = w.trace.variation(f.Body), map[*ir.Value]*ir.Statement{}
		for _, s := range f.Body {
			if constantOp(s) {
				a.constants[s.Results[0]] = s
			}
		}
	}
	begins := a.split(f.Body, passes)
	a.hoist()
	slices.SortStableFunc(a.groups, func(x, y *part) int { return y.depth - x.depth })
	for _, forward := range a.groups {
		if err := a.group(forward); err != nil {
			return nil, nil, err
		}
	}
	body := slices.Clone(a.first)
	next := 0
	for n, u := range a.root.units {
		for ; next < len(at) && next <= begins[n]; next++ {
			at[next] = len(body)
		}
		body = append(body, u.statements()...)
	}
	for ; next < len(at); next++ {
		at[next] = len(body)
	}
	copied.Body = body
	if err := within(&copied); err != nil {
		return nil, nil, err
	}
	return &copied, at, nil
}

// within checks that no value of a pass is read outside it except as a result. A step can leak a
// value through a Go variable.
func within(f *ir.Function) error {
	known := map[*ir.Value]bool{}
	for _, p := range f.Parameters {
		known[p.Value] = true
	}
	for _, s := range f.Body {
		var lost *ir.Value
		s.Reads(func(v *ir.Value) {
			if !known[v] {
				lost = v
			}
		})
		if lost != nil {
			return &errkind.Fault{Op: "module:", Subject: fmt.Sprintf("a value of type %s", lost.Type), Reason: "it is made inside of a loop or a block, and used outside of it",
				Hint: "return it from the block", Class: errkind.InvalidArgumentError}
		}
		for _, v := range s.Results {
			known[v] = true
		}
	}
	return nil
}

// split creates the parts. begins are the indices of the root's units in the step.
func (a *outline) split(body []*ir.Statement, passes []pass) (begins []int) {
	a.root = &part{}
	open, of := []*part{a.root}, map[*region.Pass]*part{}
	ends := []int{len(body)}
	for i := 0; i <= len(body); i++ {
		for len(open) > 1 && ends[len(ends)-1] <= i {
			open, ends = open[:len(open)-1], ends[:len(ends)-1]
		}
		for len(passes) > 0 && passes[0].begin == i {
			p := &part{Pass: passes[0].Pass, depth: len(open)}
			of[p.Pass] = p
			if p.Forward == nil {
				a.groups = append(a.groups, p)
			} else {
				forward := of[p.Forward]
				forward.backward = append(forward.backward, p)
			}
			if len(open) == 1 {
				begins = append(begins, i)
			}
			within := open[len(open)-1]
			within.units = append(within.units, unit{part: p})
			if passes[0].end > i {
				open, ends = append(open, p), append(ends, passes[0].end)
			}
			passes = passes[1:]
		}
		if i < len(body) {
			if len(open) == 1 {
				begins = append(begins, i)
			}
			within := open[len(open)-1]
			within.units = append(within.units, unit{statement: body[i]})
		}
	}
	return begins
}

// hoist moves constants of passes that are read elsewhere to the start. GoMLX creates a constant
// once, in the first pass that uses it.
func (a *outline) hoist() {
	home := map[*ir.Value]*part{}
	a.walk(a.root, func(in *part, s *ir.Statement) {
		if in != a.root && constantOp(s) {
			home[s.Results[0]] = in
		}
	})
	moved := map[*ir.Value]bool{}
	a.walk(a.root, func(in *part, s *ir.Statement) {
		s.Reads(func(v *ir.Value) {
			if at := home[v]; at != nil && at != in {
				moved[v] = true
			}
		})
	})
	if len(moved) == 0 {
		return
	}
	var leave func(p *part)
	leave = func(p *part) {
		p.units = slices.DeleteFunc(p.units, func(u unit) bool {
			if u.part != nil {
				leave(u.part)
				return false
			}
			if constantOp(u.statement) && moved[u.statement.Results[0]] {
				a.first = append(a.first, u.statement)
				return true
			}
			return false
		})
	}
	for _, u := range a.root.units {
		if u.part != nil {
			leave(u.part)
		}
	}
}

// constantOp reports whether a statement has no operands and computes a constant.
func constantOp(s *ir.Statement) bool {
	return len(s.Operands) == 0 && len(s.Regions) == 0 && len(s.Results) == 1 && s.Mark == nil
}

// walk calls yield for all statements of a part and of nested parts, in order.
func (a *outline) walk(p *part, yield func(in *part, s *ir.Statement)) {
	for _, u := range p.units {
		if u.part != nil {
			a.walk(u.part, yield)
		} else {
			yield(p, u.statement)
		}
	}
}

// statements returns the statements of a unit.
func (u unit) statements() []*ir.Statement {
	if u.part != nil {
		return u.part.statements()
	}
	return []*ir.Statement{u.statement}
}

func (p *part) statements() (all []*ir.Statement) {
	for _, u := range p.units {
		all = append(all, u.statements()...)
	}
	return all
}

// prune removes unused statements of a backward pass, so that no value is kept for them. GoMLX
// takes the gradient of a sum of the results, and the sum itself is unused.
func (a *outline) prune(p *part) {
	live := map[*ir.Value]bool{}
	for _, v := range a.insides(p) {
		live[v] = true
	}
	var rest []*ir.Statement
	for _, s := range slices.Backward(p.statements()) {
		m, argument := s.Mark.(entryMark)
		if argument = argument && m.pass == p.Pass; argument || slices.ContainsFunc(s.Results, func(v *ir.Value) bool { return live[v] }) {
			s.Reads(func(v *ir.Value) { live[v] = true })
			rest = append(rest, s)
		}
	}
	slices.Reverse(rest)
	p.set(rest)
}

// set replaces the statements of a part.
func (p *part) set(all []*ir.Statement) {
	p.units = nil
	p.add(all...)
}

// add appends statements to a part.
func (p *part) add(all ...*ir.Statement) {
	for _, s := range all {
		p.units = append(p.units, unit{statement: s})
	}
}

// group writes a forward pass and its backward passes, which contain no other passes any more.
func (a *outline) group(forward *part) error {
	forward.backward = slices.DeleteFunc(forward.backward, a.dead)
	if a.dead(forward) {
		return nil
	}
	for _, p := range forward.backward {
		a.prune(p)
	}
	switch forward.Kind.(type) {
	case region.Loop:
		a.loop(forward)
	case region.Block:
		a.block(forward)
	case region.Manual:
		return a.manual(forward)
	case region.On:
		return a.device(forward)
	}
	return nil
}

// dead removes a pass without results, whose trace ended with a panic.
func (a *outline) dead(p *part) bool {
	if slices.ContainsFunc(a.insides(p), func(v *ir.Value) bool { return v != nil }) {
		return false
	}
	p.units = nil
	return true
}

// results replaces the marks of a pass's results outside: result index of the pass becomes
// given[index].
func (a *outline) results(p *part, given []*ir.Value) {
	a.replace(func(s *ir.Statement) *ir.Statement {
		if m, ok := s.Mark.(exitMark); ok && m.pass == p.Pass {
			return unchanged(s.Results[0], given[m.index])
		}
		return s
	})
}

// insides returns the values inside that are results of a pass. An unused result is nil.
func (a *outline) insides(p *part) []*ir.Value {
	all := make([]*ir.Value, len(p.Out))
	a.walk(a.root, func(_ *part, s *ir.Statement) {
		if m, ok := s.Mark.(exitMark); ok && m.pass == p.Pass {
			all[m.index] = s.Operands[0]
		}
	})
	return all
}

// replace replaces statements in the whole step, except in excluded parts.
func (a *outline) replace(f func(s *ir.Statement) *ir.Statement) {
	var within func(p *part)
	within = func(p *part) {
		if p.excluded {
			return
		}
		for i, u := range p.units {
			if u.part != nil {
				within(u.part)
			} else {
				p.units[i].statement = f(u.statement)
			}
		}
	}
	within(a.root)
}

// read returns the values that a pass's statements read, and its results.
func (p *part) read(gives []*ir.Value) map[*ir.Value]bool {
	all := map[*ir.Value]bool{}
	for _, v := range gives {
		all[v] = true
	}
	_, _, rest := p.arguments()
	for _, s := range rest {
		s.Reads(func(v *ir.Value) { all[v] = true })
	}
	return all
}

// arguments returns the values of a pass's arguments inside, the arguments themselves outside, and
// the statements without the argument marks. An argument that is not read inside has a nil value.
func (p *part) arguments() (inside, outside []*ir.Value, rest []*ir.Statement) {
	inside, outside = make([]*ir.Value, len(p.In)), make([]*ir.Value, len(p.In))
	for _, s := range p.statements() {
		if m, ok := s.Mark.(entryMark); ok && m.pass == p.Pass {
			inside[m.index], outside[m.index] = s.Results[0], s.Operands[0]
			continue
		}
		rest = append(rest, s)
	}
	return inside, outside, rest
}
