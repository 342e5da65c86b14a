package spmd

import (
	"slices"

	"github.com/tpustrategy/tpustrategy/internal/region"
	"github.com/tpustrategy/tpustrategy/lowering/ir"
)

// keeper determines the values of a forward pass that a backward pass reads, and which of them are
// kept and which are recomputed.
type keeper struct {
	f        *ir.Function // creates values
	keep     region.Keep
	forward  *part
	made     map[*ir.Value]*ir.Statement // statements of the forward pass by result, without arguments
	argument map[*ir.Value]int
	outside  []*ir.Value // the arguments of the forward pass, outside

	// kept are the values that the forward pass returns for all backward passes, in addition to its
	// results.
	kept []*ir.Value
	// given is the dependence of each value that is known so far.
	given map[*ir.Value]dependence
}

// dependence is the kind of inputs that a value of a forward pass depends on.
type dependence int

const (
	fixed   dependence = iota // the same in each iteration
	slice                     // a slice of a stack, and fixed values
	flowing                   // a state of the loop, or an argument of a block
)

func newKeeper(f *ir.Function, forward *part, keep region.Keep) *keeper {
	k := &keeper{f: f, keep: keep, forward: forward, made: map[*ir.Value]*ir.Statement{}, argument: map[*ir.Value]int{}, given: map[*ir.Value]dependence{}}
	inside, outside, rest := forward.arguments()
	k.outside = outside
	for i, v := range inside {
		if v == nil {
			continue
		}
		k.argument[v] = i
		switch forward.In[i].(type) {
		case region.Carry:
			k.given[v] = flowing
		case region.Slice:
			k.given[v] = slice
		}
	}
	for _, s := range rest {
		worst := fixed
		s.Reads(func(v *ir.Value) { worst = max(worst, k.given[v]) })
		for _, v := range s.Results {
			k.made[v] = s
			k.given[v] = worst
		}
	}
	return k
}

// cheap lists ops whose recomputation costs less than keeping their result.
var cheap = []string{"stablehlo.reshape", "stablehlo.broadcast_in_dim", "stablehlo.transpose", "stablehlo.convert", "stablehlo.reverse"}

// products lists the ops of the rematerialization policies that keep products.
var products = []string{"stablehlo.dot_general", "stablehlo.dot", "stablehlo.convolution"}

// keeps reports whether a value that the forward pass computes is kept.
func (k *keeper) keeps(v *ir.Value) bool {
	s := k.made[v]
	if k.given[v] == fixed {
		return false
	}
	if k.given[v] == slice && gathers(s, k.made) {
		return false // it would be kept unsharded on each replica
	}
	if m, ok := s.Mark.(nameMark); ok && k.keep.Some {
		return k.keep.Named(m.name)
	}
	if k.keep.Some {
		return k.keep.Products && slices.Contains(products, s.Op)
	}
	marked := false
	switch s.Mark.(type) {
	case annotationMark, replicateMark, nameMark, zeros:
		marked = true
	}
	if !marked && !slices.Contains(cheap, s.Op) {
		return true
	}
	if k.given[v] == slice {
		return false
	}
	// Its operands are kept instead, unless they are larger.
	return slices.ContainsFunc(s.Operands, func(of *ir.Value) bool { return bytes(of.Type) > bytes(v.Type) && k.made[of] != nil })
}

func bytes(t ir.Type) int {
	n := t.DType.Size()
	for _, d := range t.Dims {
		n *= d
	}
	return n
}

// keepIt records that a value is kept.
func (k *keeper) keepIt(v *ir.Value) {
	if !slices.Contains(k.kept, v) {
		k.kept = append(k.kept, v)
	}
}

// remake contains the recomputation of one backward pass.
type remake struct {
	*keeper
	// read returns a kept value or an argument of the forward pass at the backward pass.
	read func(v *ir.Value) *ir.Value
	body []*ir.Statement
	has  map[*ir.Value]*ir.Value
}

// value returns a value of the forward pass at the backward pass.
func (r *remake) value(v *ir.Value) *ir.Value {
	if of, ok := r.has[v]; ok {
		return of
	}
	of := v
	if i, ok := r.argument[v]; ok {
		if _, carried := r.forward.In[i].(region.Carry); carried {
			r.keepIt(v)
		}
		of = r.read(v)
	} else if s := r.made[v]; s != nil {
		if r.keeps(v) {
			r.keepIt(v)
			of = r.read(v)
		} else {
			r.recompute(s)
			return r.has[v]
		}
	}
	r.has[v] = of
	return of
}

// recompute repeats a statement of the forward pass.
func (r *remake) recompute(s *ir.Statement) {
	copied := *s.Reading(r.value)
	copied.Results = make([]*ir.Value, len(s.Results))
	if s.Pack != "" {
		types := make([]ir.Type, len(s.Results))
		for i, v := range s.Results {
			types[i] = v.Type
		}
		copied.Pack = r.f.Fresh(ir.Type{}).Name
		copied.Results = ir.Pack(copied.Pack, types...)
		copied.Results[0].Origin = s.Results[0].Origin
	} else {
		for i, v := range s.Results {
			copied.Results[i] = r.f.Like(v)
		}
	}
	for i, v := range s.Results {
		r.has[v] = copied.Results[i]
	}
	r.body = append(r.body, &copied)
}

// backward replaces the values of the forward pass that the backward pass reads.
func (r *remake) backward(a *outline, p *part) {
	var all []*ir.Statement
	here := func(s *ir.Statement) *ir.Statement {
		s = s.Reading(r.value)
		all, r.body = append(all, r.body...), nil
		return s
	}
	for _, s := range p.statements() {
		if m, ok := s.Mark.(entryMark); !ok || m.pass != p.Pass {
			s = here(s)
		}
		all = append(all, s)
	}
	// A result may be a value of the forward pass itself.
	a.replace(func(s *ir.Statement) *ir.Statement {
		if m, ok := s.Mark.(exitMark); ok && m.pass == p.Pass {
			return here(s)
		}
		return s
	})
	p.set(all)
}
