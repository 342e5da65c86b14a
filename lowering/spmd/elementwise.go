package spmd

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/gomlx/core/graph"

	"github.com/tpustrategy/tpustrategy/lowering/ir"
)

// ShardProof compares two traces of the same Go code: one with global tensors, and one in which
// some parameters have the shape of a replica's shard. It proves that a replica can compute its
// shard of a result from its shards alone. Numbers that Go code derives from a shape are different
// constants in the two traces, so the proof covers them too.
type ShardProof struct {
	global, shard indexedTrace
	parameters    map[string]ShardedParameter
	proven        map[[2]*ir.Value]equivalence
}

// ShardedParameter describes a parameter of both traces. The zero value describes a parameter of
// equal shape in both traces and equal value on all replicas.
type ShardedParameter struct {
	// ReplicaShard describes the parameter of the shard trace as a shard of the global parameter.
	ReplicaShard ReplicaShard
	// Finite is set if all elements of the global tensor are finite.
	Finite bool
	// ReplicaVarying is set if the value differs between replicas.
	ReplicaVarying bool
}

type indexedTrace struct {
	trace       *Trace
	parameters  map[*ir.Value]string
	definitions map[*ir.Value]*ir.Statement
}

// equivalence describes how a value of the trace with global tensors corresponds to a value of the
// trace with shards.
type equivalence struct {
	class        equivalenceClass
	replicaShard ReplicaShard // of class sharded
}

type equivalenceClass int

const (
	unproven equivalenceClass = iota
	// equal values are identical in both traces and on all replicas.
	equal
	// splat values consist of equal elements, the same in both traces. Their shapes may differ.
	splat
	// sharded values are, in the shard trace, a replica's shard of the value in the global trace.
	sharded
)

// NewShardProof returns a proof for two graphs that were traced by [Trace] backends: global with
// unsharded tensors, and shard with the shards of a replica. Parameters of the same name
// correspond. NewShardProof returns an error for graphs of other backends.
func NewShardProof(global, shard *graph.Graph, parameters map[string]ShardedParameter) (*ShardProof, error) {
	p := &ShardProof{parameters: parameters, proven: map[[2]*ir.Value]equivalence{}}
	var err error
	if p.global, err = indexTrace(global); err != nil {
		return nil, err
	}
	p.shard, err = indexTrace(shard)
	return p, err
}

func indexTrace(g *graph.Graph) (indexedTrace, error) {
	t, ok := g.Backend().(*Trace)
	if !ok {
		return indexedTrace{}, newFault(fmt.Sprintf("graph %q", g.Name()), "its backend is not a trace",
			"make the graph with graph.NewGraph(trace, name)")
	}
	s := indexedTrace{trace: t, parameters: map[*ir.Value]string{}, definitions: map[*ir.Value]*ir.Statement{}}
	for h := range g.NumParameters() {
		node := g.GetParameterByHandle(graph.ParameterHandle(h))
		v, err := t.nodeValue(node)
		if err != nil {
			return s, err
		}
		s.parameters[v] = node.GetParameterName()
	}
	for _, statement := range t.stepFunction().IR().Body {
		for _, v := range statement.Results {
			s.definitions[v] = statement
		}
	}
	return s, nil
}

// IsElementwise reports whether the proof shows that the node shard is a replica's shard of the
// node global. If replicaShard is zero, IsElementwise reports whether the proof shows that both
// nodes are equal on all replicas.
func (p *ShardProof) IsElementwise(global, shard *graph.Node, replicaShard ReplicaShard) (bool, error) {
	g, err := p.global.trace.nodeValue(global)
	if err != nil {
		return false, err
	}
	s, err := p.shard.trace.nodeValue(shard)
	if err != nil {
		return false, err
	}
	e := p.compare(g, s)
	switch {
	case !replicaShard.IsSharded():
		return e.class == equal, nil
	case !p.isShardOf(g.Type, s.Type, replicaShard):
		return false, nil
	}
	return e.class == splat || e.class == sharded && e.replicaShard == replicaShard, nil
}

// ParametersOf returns the sorted names of the parameters that the nodes depend on. The nodes may
// belong to either trace.
func (p *ShardProof) ParametersOf(nodes ...*graph.Node) (names []string, err error) {
	for _, node := range nodes {
		s := &p.global
		if node.Graph().Backend() == p.shard.trace {
			s = &p.shard
		}
		v, err := s.trace.nodeValue(node)
		if err != nil {
			return nil, err
		}
		visited := map[*ir.Value]bool{}
		var visit func(v *ir.Value)
		visit = func(v *ir.Value) {
			if visited[v] {
				return
			}
			visited[v] = true
			if name, ok := s.parameters[v]; ok {
				names = append(names, name)
			} else if statement := s.definitions[v]; statement != nil {
				statement.WalkOperands(visit)
			}
		}
		visit(v)
	}
	slices.Sort(names)
	return slices.Compact(names), nil
}

func (p *ShardProof) isShardOf(global, shard ir.Type, replicaShard ReplicaShard) bool {
	if global.DType != shard.DType || replicaShard.Dim >= global.Rank() ||
		global.Dims[replicaShard.Dim] != replicaShard.Size {
		return false
	}
	return slices.Equal(replicaShard.ShardDims(global.Dims, p.global.trace.opts.Replicas), shard.Dims)
}

// compare returns how a value of the global trace is proven to correspond to a value of the shard
// trace.
func (p *ShardProof) compare(global, shard *ir.Value) equivalence {
	key := [2]*ir.Value{global, shard}
	if e, ok := p.proven[key]; ok {
		return e
	}
	e := p.compareParameters(global, shard)
	if g, s := p.global.definitions[global], p.shard.definitions[shard]; g != nil && s != nil {
		index := slices.Index(g.Results, global)
		if index == slices.Index(s.Results, shard) && sameOp(g, s) {
			e = p.compareStatements(g, s, index)
		}
	}
	p.proven[key] = e
	return e
}

func (p *ShardProof) compareParameters(global, shard *ir.Value) equivalence {
	name, ok := p.global.parameters[global]
	if !ok || name == ReplicaIDName || p.shard.parameters[shard] != name {
		return equivalence{}
	}
	switch leaf := p.parameters[name]; {
	case leaf.ReplicaVarying:
	case leaf.ReplicaShard.IsSharded() && p.isShardOf(global.Type, shard.Type, leaf.ReplicaShard):
		return equivalence{sharded, leaf.ReplicaShard}
	case !leaf.ReplicaShard.IsSharded() && global.Type.Equal(shard.Type):
		return equivalence{class: equal}
	}
	return equivalence{}
}

// sameOp reports whether two statements agree in everything except their operands, the contents of
// their regions, and the shapes of their results.
func sameOp(g, s *ir.Statement) bool {
	if g.Placeholder != nil || s.Placeholder != nil || g.Op != s.Op || len(g.Operands) != len(s.Operands) ||
		len(g.Regions) != len(s.Regions) {
		return false
	}
	return slices.EqualFunc(g.Results, s.Results, func(g, s *ir.Value) bool { return g.Type.DType == s.Type.DType }) &&
		slices.EqualFunc(g.Attributes, s.Attributes, sameAttribute)
}

func sameAttribute(g, s ir.Attribute) bool {
	if g.Key != s.Key || (g.Value == nil) != (s.Value == nil) {
		return false
	}
	if c, ok := g.Value.(*ir.Dense); ok && g.Key == ir.ValueKey {
		d, ok := s.Value.(*ir.Dense)
		return ok && slices.Equal(c.AppendElements(nil), d.AppendElements(nil)) // constant compares the types
	}
	return g.Value == nil || slices.Equal(g.Value.Append(nil), s.Value.Append(nil))
}

// compareStatements compares two statements for which sameOp returns true, and returns the
// equivalence of their results with the given index.
func (p *ShardProof) compareStatements(g, s *ir.Statement, index int) equivalence {
	operands := make([]equivalence, len(g.Operands))
	identical := !deviceDependentOps[g.Op] && slices.EqualFunc(g.Results, s.Results, sameType)
	for i := range g.Operands {
		operands[i] = p.compare(g.Operands[i], s.Operands[i])
		identical = identical && operands[i].class == equal
	}
	if identical && p.sameRegions(g, s, map[*ir.Value]*ir.Value{}) {
		return equivalence{class: equal}
	}
	gOut, sOut := g.Results[index].Type, s.Results[index].Type
	switch {
	case g.Op == "stablehlo.optimization_barrier":
		return operands[index]
	case g.Op == "stablehlo.constant":
		if c, ok := g.Attribute(ir.ValueKey).(*ir.Dense); ok && c.Splat != nil {
			return equivalence{class: splat}
		}
	case layoutOnlyOps[g.Op] && operands[0].class == equal && elementCount(g.Operands[0].Type) == 1,
		layoutOnlyOps[g.Op] && operands[0].class == splat:
		return equivalence{class: splat}
	case layoutOnlyOps[g.Op] && g.Op != "stablehlo.transpose" && slices.Equal(g.Operands[0].Type.Dims, gOut.Dims) &&
		slices.Equal(s.Operands[0].Type.Dims, sOut.Dims):
		return operands[0]
	case elementwiseOps[g.Op]:
		return combineOperands(g.Operands, operands)
	case g.Op == "stablehlo.reduce" && gOut.Equal(sOut) && p.isFiniteCheck(g, s):
		return equivalence{class: equal}
	}
	return equivalence{}
}

// combineOperands returns the equivalence of the results of an elementwise op, given the
// equivalences of its operands.
func combineOperands(values []*ir.Value, operands []equivalence) (result equivalence) {
	for i, e := range operands {
		switch {
		case e.class == equal && values[i].Type.Rank() == 0:
		case e.class == splat:
			if result.class == unproven {
				result = e
			}
		case e.class == sharded && (result.class != sharded || result.replicaShard == e.replicaShard):
			result = e
		default:
			return equivalence{}
		}
	}
	return result
}

// isFiniteCheck reports whether two reductions test whether all elements of a parameter are finite,
// and the parameter has the Finite property. sameOp must return true for the reductions.
func (p *ShardProof) isFiniteCheck(g, s *ir.Statement) bool {
	if len(g.Regions) != 1 || len(g.Operands) != 2 || g.Regions[0].Body[0].Op != "stablehlo.and" ||
		!p.sameRegions(g, s, map[*ir.Value]*ir.Value{}) || p.compare(g.Operands[1], s.Operands[1]).class != equal {
		return false
	}
	first := p.global.definitions[g.Operands[1]]
	if first == nil {
		return false
	}
	if c, ok := first.Attribute(ir.ValueKey).(*ir.Dense); !ok || c.Splat == nil || c.Splat.Text != ir.True().Text {
		return false
	}
	test := p.global.definitions[g.Operands[0]]
	if test == nil || test.Op != "stablehlo.is_finite" || p.compare(g.Operands[0], s.Operands[0]).class != sharded {
		return false
	}
	x := test.Operands[0]
	for from := p.global.definitions[x]; from != nil && from.Op == "stablehlo.convert"; from = p.global.definitions[x] {
		if !isWiderFloat(x.Type.DType, from.Operands[0].Type.DType) {
			return false
		}
		x = from.Operands[0]
	}
	return p.parameters[p.global.parameters[x]].Finite
}

// isWiderFloat reports whether dtype wide can represent each finite number of dtype narrow.
func isWiderFloat(wide, narrow dtypes.DType) bool {
	return wide == narrow || wide.IsFloat() && narrow.IsFloat() && wide.Bits() > narrow.Bits()
}

// sameRegions reports whether the regions of two statements are equal and read only equal values
// from outside. inner maps values inside the regions of g to the corresponding values inside the
// regions of s.
func (p *ShardProof) sameRegions(g, s *ir.Statement, inner map[*ir.Value]*ir.Value) bool {
	return slices.EqualFunc(g.Regions, s.Regions, func(g, s *ir.Region) bool {
		return p.bindValues(g.Arguments, s.Arguments, inner) && slices.EqualFunc(g.Body, s.Body, func(g,
			s *ir.Statement) bool {
			return sameOp(g, s) && !deviceDependentOps[g.Op] && slices.EqualFunc(g.Operands, s.Operands, func(g,
				s *ir.Value) bool {
				if of, ok := inner[g]; ok {
					return of == s
				}
				return p.compare(g, s).class == equal
			}) && p.sameRegions(g, s, inner) && p.bindValues(g.Results, s.Results, inner)
		})
	})
}

// bindValues records corresponding values of two regions in inner. It reports whether their types
// are equal.
func (p *ShardProof) bindValues(g, s []*ir.Value, inner map[*ir.Value]*ir.Value) bool {
	if !slices.EqualFunc(g, s, sameType) {
		return false
	}
	for i := range g {
		inner[g[i]] = s[i]
	}
	return true
}

func sameType(g, s *ir.Value) bool { return g.Type.Equal(s.Type) }

func elementCount(t ir.Type) int {
	n := 1
	for _, d := range t.Dims {
		n *= d
	}
	return n
}

// opSet returns the set of the named ops. The default dialect is stablehlo.
func opSet(names ...string) map[string]bool {
	set := map[string]bool{}
	for _, name := range names {
		if !strings.Contains(name, ".") {
			name = "stablehlo." + name
		}
		set[name] = true
	}
	return set
}

var (
	// elementwiseOps lists ops in which each element of the result depends on the same element of
	// each operand, or on scalar operands.
	elementwiseOps = opSet("abs", "add", "and", "atan2", "cbrt", "ceil", "chlo.erf", "clamp", "compare", "complex",
		"convert",
		"cosine", "count_leading_zeros", "divide", "exponential", "exponential_minus_one", "floor", "imag",
		"is_finite", "log",
		"log_plus_one", "logistic", "maximum", "minimum", "multiply", "negate", "not", "or", "popcnt", "power", "real",
		"reduce_precision", "remainder", "round_nearest_afz", "round_nearest_even", "rsqrt", "select", "shift_left",
		"shift_right_arithmetic", "shift_right_logical", "sign", "sine", "sqrt", "subtract", "tan", "tanh", "xor")
	layoutOnlyOps = opSet("broadcast_in_dim", "reshape", "transpose")
	// deviceDependentOps lists ops whose results may differ between devices even if their operands
	// are equal, and ops that call another function.
	deviceDependentOps = opSet("replica_id", "partition_id", "infeed", "outfeed", "recv", "send", "custom_call",
		"composite",
		"collective_permute", "collective_broadcast", "all_to_all", "reduce_scatter", "func.call")
)
