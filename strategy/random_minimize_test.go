package strategy_test

import (
	"slices"

	"github.com/tpustrategy/tpustrategy/logical"
)

// minimize removes instructions of a failing program as long as it still fails.
func (p *randomProgram) minimize(fails func(*randomProgram) bool) *randomProgram {
	best := p
	for changed := true; changed; {
		changed = false
		for _, q := range best.smaller() {
			if fails(q) {
				best, changed = q, true
				break
			}
		}
	}
	return best
}

func (p *randomProgram) clone() *randomProgram {
	q := *p
	q.args, q.vars, q.code = slices.Clone(p.args), slices.Clone(p.vars), slices.Clone(p.code)
	q.loss, q.results, q.updates = slices.Clone(p.loss), slices.Clone(p.results), slices.Clone(p.updates)
	return &q
}

// smaller lists programs with one element removed.
func (p *randomProgram) smaller() []*randomProgram {
	var all []*randomProgram
	with := func(change func(q *randomProgram)) {
		q := p.clone()
		change(q)
		all = append(all, q)
	}
	if len(p.loss) > 0 {
		with(func(q *randomProgram) { q.loss = nil })
	}
	if p.loop {
		with(func(q *randomProgram) { q.loop = false })
	}
	if len(p.updates) > 0 {
		with(func(q *randomProgram) { q.updates = nil })
	}
	for i := range p.results {
		if len(p.results) > 1 {
			with(func(q *randomProgram) { q.results = slices.Delete(q.results, i, i+1) })
		}
		if p.results[i].note.Kind() != logical.KindNone {
			with(func(q *randomProgram) { q.results[i].note = logical.Annotation{} })
		}
	}
	for i := range p.updates {
		with(func(q *randomProgram) { q.updates = slices.Delete(q.updates, i, i+1) })
	}
	for i := range p.loss {
		with(func(q *randomProgram) { q.loss = slices.Delete(q.loss, i, i+1) })
	}
	for i := range p.args {
		if p.args[i].note.Kind() != logical.KindNone {
			with(func(q *randomProgram) { q.args[i].note = logical.Annotation{} })
		}
	}
	for i := range p.vars {
		if p.vars[i].note.Kind() != logical.KindNone {
			with(func(q *randomProgram) { q.vars[i].note = logical.Annotation{} })
		}
	}
	for i, code := range simpler(p.code) {
		_ = i
		with(func(q *randomProgram) { q.code = code })
	}
	return all
}

// simpler lists codes with one instruction removed or replaced by zeros, the last instructions
// first.
func simpler(code []instruction) [][]instruction {
	var all [][]instruction
	for i, in := range slices.Backward(code) {
		if in.op != "zeros" {
			c := slices.Clone(code)
			c[i] = instruction{op: "zeros", kinds: in.kinds}
			all = append(all, c)
		}
		if in.body == nil {
			continue
		}
		for _, inner := range simpler(in.body.code) {
			c := slices.Clone(code)
			body := *in.body
			body.code = inner
			c[i].body = &body
			all = append(all, c)
		}
	}
	return all
}
