package spmd

import (
	"slices"

	"github.com/tpustrategy/tpustrategy/internal/region"
	"github.com/tpustrategy/tpustrategy/lowering/ir"
)

// rematerializer selects the values of a forward pass that are kept in memory for its backward
// passes. The backward passes recompute all other values that they read.
type rematerializer struct {
	function       *ir.Function // creates values
	policy         region.RematPolicy
	forward        *passNode
	definitions    map[*ir.Value]*ir.Statement // statements of the forward pass by result, without arguments
	argumentIndex  map[*ir.Value]int
	outerArguments []*ir.Value // the arguments of the forward pass, outside

	// kept contains the values that the forward pass returns for backward passes, in addition to
	// its results.
	kept []*ir.Value
	// dependence contains the kind of inputs that each value of the forward pass depends on.
	dependence map[*ir.Value]dependence
}

type dependence int

const (
	loopInvariant dependence = iota // the same in each iteration
	stackSlice                      // a slice of a stack, and fixed values
	carriedState                    // a state of the loop, or an argument of a block
)

func newRematerializer(f *ir.Function, forward *passNode, keep region.RematPolicy) *rematerializer {
	k := &rematerializer{function: f, policy: keep, forward: forward, definitions: map[*ir.Value]*ir.Statement{},
		argumentIndex: map[*ir.Value]int{}, dependence: map[*ir.Value]dependence{}}
	inside, outside, rest := forward.arguments()
	k.outerArguments = outside
	for i, v := range inside {
		if v == nil {
			continue
		}
		k.argumentIndex[v] = i
		switch forward.In[i].(type) {
		case region.Carry:
			k.dependence[v] = carriedState
		case region.Slice:
			k.dependence[v] = stackSlice
		}
	}
	for _, s := range rest {
		strongest := loopInvariant
		s.WalkOperands(func(v *ir.Value) { strongest = max(strongest, k.dependence[v]) })
		for _, v := range s.Results {
			k.definitions[v] = s
			k.dependence[v] = strongest
		}
	}
	return k
}

// cheapOps lists ops that cost less to recompute than their result costs to keep.
var cheapOps = []string{"stablehlo.reshape", "stablehlo.broadcast_in_dim", "stablehlo.transpose", "stablehlo.convert",
	"stablehlo.reverse"}

// productOps lists the ops whose results a policy with Products set keeps.
var productOps = []string{"stablehlo.dot_general", "stablehlo.dot", "stablehlo.convolution"}

func (k *rematerializer) shouldKeep(v *ir.Value) bool {
	s := k.definitions[v]
	if k.dependence[v] == loopInvariant {
		return false
	}
	if k.dependence[v] == stackSlice && gathersState(s, k.definitions) {
		return false // it would be kept unsharded on each replica
	}
	if m, ok := s.Placeholder.(namePlaceholder); ok && k.policy.Selective {
		return k.policy.KeepsName(m.name)
	}
	if k.policy.Selective {
		return k.policy.Products && slices.Contains(productOps, s.Op)
	}
	isCheap := false
	switch s.Placeholder.(type) {
	case annotationPlaceholder, replicatePlaceholder, namePlaceholder, zerosPlaceholder:
		isCheap = true
	}
	if !isCheap && !slices.Contains(cheapOps, s.Op) {
		return true
	}
	if k.dependence[v] == stackSlice {
		return false
	}
	// Its operands are kept instead, unless they are larger.
	return slices.ContainsFunc(s.Operands, func(of *ir.Value) bool {
		return byteSize(of.Type) > byteSize(v.Type) &&
			k.definitions[of] != nil
	})
}

func byteSize(t ir.Type) int {
	n := t.DType.Size()
	for _, d := range t.Dims {
		n *= d
	}
	return n
}

func (k *rematerializer) addKept(v *ir.Value) {
	if !slices.Contains(k.kept, v) {
		k.kept = append(k.kept, v)
	}
}

// recomputation adds ops to a backward pass that recompute values of the forward pass.
type recomputation struct {
	*rematerializer
	// load returns a kept value, or an argument of the forward pass, for use in the backward pass.
	load         func(v *ir.Value) *ir.Value
	body         []*ir.Statement
	replacements map[*ir.Value]*ir.Value
}

// backwardValue returns a value of the forward pass for use in the backward pass. It loads or
// recomputes the value.
func (r *recomputation) backwardValue(v *ir.Value) *ir.Value {
	if replacement, ok := r.replacements[v]; ok {
		return replacement
	}
	replacement := v
	if i, ok := r.argumentIndex[v]; ok {
		if _, carried := r.forward.In[i].(region.Carry); carried {
			r.addKept(v)
		}
		replacement = r.load(v)
	} else if s := r.definitions[v]; s != nil {
		if r.shouldKeep(v) {
			r.addKept(v)
			replacement = r.load(v)
		} else {
			r.recompute(s)
			return r.replacements[v]
		}
	}
	r.replacements[v] = replacement
	return replacement
}

// recompute adds a copy of a statement of the forward pass to the backward pass.
func (r *recomputation) recompute(s *ir.Statement) {
	copied := *s.ReplaceOperands(r.backwardValue)
	copied.Results = make([]*ir.Value, len(s.Results))
	if s.ResultName != "" {
		types := make([]ir.Type, len(s.Results))
		for i, v := range s.Results {
			types[i] = v.Type
		}
		copied.ResultName = r.function.NewValue(ir.Type{}).Name
		copied.Results = ir.NewResults(copied.ResultName, types...)
		copied.Results[0].Origin = s.Results[0].Origin
	} else {
		for i, v := range s.Results {
			copied.Results[i] = r.function.NewValueLike(v)
		}
	}
	for i, v := range s.Results {
		r.replacements[v] = copied.Results[i]
	}
	r.body = append(r.body, &copied)
}

// rewriteBackward replaces each value of the forward pass that a backward pass reads by a loaded or
// recomputed value.
func (r *recomputation) rewriteBackward(a *outliner, p *passNode) {
	var all []*ir.Statement
	resolve := func(s *ir.Statement) *ir.Statement {
		s = s.ReplaceOperands(r.backwardValue)
		all, r.body = append(all, r.body...), nil
		return s
	}
	for _, s := range p.statements() {
		if m, ok := s.Placeholder.(argumentPlaceholder); !ok || m.pass != p.Pass {
			s = resolve(s)
		}
		all = append(all, s)
	}
	// A result may be a value of the forward pass itself.
	a.mapStatements(func(s *ir.Statement) *ir.Statement {
		if m, ok := s.Placeholder.(resultPlaceholder); ok && m.pass == p.Pass {
			return resolve(s)
		}
		return s
	})
	p.setStatements(all)
}
