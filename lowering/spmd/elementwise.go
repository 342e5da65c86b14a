package spmd

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/gomlx/core/graph"

	"github.com/tpustrategy/tpustrategy/lowering/ir"
)

// ShardProof compares two traces of the same Go code: one with global tensors and one in which some
// parameters have the shape of a replica's shard. It proves that a replica computes its shard of a
// result from its shards alone. The proof covers numbers that Go code derives from a shape, because
// they are different constants in the two traces.
type ShardProof struct {
	global, shard side
	leaves        map[string]ShardLeaf
	proven        map[[2]*ir.Value]equivalence
}

// ShardLeaf describes a parameter of both traces. The zero value is a parameter that has the same
// shape in both traces and the same value on all replicas.
type ShardLeaf struct {
	// Over describes how the parameter of the shard trace is a shard of the parameter of the global
	// trace.
	Over ReplicaShard
	// Finite is set if all elements of the global tensor are finite.
	Finite bool
	// Varying is set if the value differs between replicas.
	Varying bool
}

// side is one of the two traces.
type side struct {
	trace      *Trace
	parameters map[*ir.Value]string
	defined    map[*ir.Value]*ir.Statement
}

// equivalence is the relation between a value of the global trace and a value of the shard trace.
type equivalence struct {
	class class
	over  ReplicaShard // of class sharded
}

type class int

const (
	unproven class = iota
	// equal values are identical in both traces and on all replicas.
	equal
	// splat values have equal elements, and one number in both traces. Their shapes may differ.
	splat
	// sharded values of the shard trace are a replica's shard of the value of the global trace.
	sharded
)

// NewShardProof returns a proof for two graphs whose backends are traces. Parameters of the same
// name correspond. It returns an error if a graph has another backend.
func NewShardProof(global, shard *graph.Graph, leaves map[string]ShardLeaf) (*ShardProof, error) {
	p := &ShardProof{leaves: leaves, proven: map[[2]*ir.Value]equivalence{}}
	var err error
	if p.global, err = newSide(global); err != nil {
		return nil, err
	}
	p.shard, err = newSide(shard)
	return p, err
}

func newSide(g *graph.Graph) (side, error) {
	t, ok := g.Backend().(*Trace)
	if !ok {
		return side{}, fault(fmt.Sprintf("graph %q", g.Name()), "its backend is not a trace", "make the graph with graph.NewGraph(trace, name)")
	}
	s := side{trace: t, parameters: map[*ir.Value]string{}, defined: map[*ir.Value]*ir.Statement{}}
	for h := range g.NumParameters() {
		node := g.GetParameterByHandle(graph.ParameterHandle(h))
		v, err := t.value(node)
		if err != nil {
			return s, err
		}
		s.parameters[v] = node.GetParameterName()
	}
	for _, statement := range t.main().IR().Body {
		for _, v := range statement.Results {
			s.defined[v] = statement
		}
	}
	return s, nil
}

// Elementwise reports whether the node of the shard trace is proven to be a replica's shard of the
// node of the global trace. With a zero over, it reports whether the two nodes are proven to be
// identical on all replicas.
func (p *ShardProof) Elementwise(global, shard *graph.Node, over ReplicaShard) (bool, error) {
	g, err := p.global.trace.value(global)
	if err != nil {
		return false, err
	}
	s, err := p.shard.trace.value(shard)
	if err != nil {
		return false, err
	}
	e := p.compare(g, s)
	switch {
	case !over.Is():
		return e.class == equal, nil
	case !p.corresponds(g.Type, s.Type, over):
		return false, nil
	}
	return e.class == splat || e.class == sharded && e.over == over, nil
}

// Parameters returns the names of the parameters that the nodes depend on, of either trace.
func (p *ShardProof) Parameters(nodes ...*graph.Node) (names []string, err error) {
	for _, node := range nodes {
		s := &p.global
		if node.Graph().Backend() == p.shard.trace {
			s = &p.shard
		}
		v, err := s.trace.value(node)
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
			} else if statement := s.defined[v]; statement != nil {
				statement.Reads(visit)
			}
		}
		visit(v)
	}
	slices.Sort(names)
	return slices.Compact(names), nil
}

// corresponds reports whether a tensor of type shard is a shard of a tensor of type global.
func (p *ShardProof) corresponds(global, shard ir.Type, over ReplicaShard) bool {
	if global.DType != shard.DType || over.Dim >= global.Rank() || global.Dims[over.Dim] != over.Size {
		return false
	}
	return slices.Equal(over.Parts(global.Dims, p.global.trace.opts.Replicas), shard.Dims)
}

// compare returns the relation between a value of the global trace and a value of the shard trace.
func (p *ShardProof) compare(global, shard *ir.Value) equivalence {
	key := [2]*ir.Value{global, shard}
	if e, ok := p.proven[key]; ok {
		return e
	}
	e := p.parameter(global, shard)
	if g, s := p.global.defined[global], p.shard.defined[shard]; g != nil && s != nil {
		index := slices.Index(g.Results, global)
		if index == slices.Index(s.Results, shard) && similar(g, s) {
			e = p.statements(g, s, index)
		}
	}
	p.proven[key] = e
	return e
}

func (p *ShardProof) parameter(global, shard *ir.Value) equivalence {
	name, ok := p.global.parameters[global]
	if !ok || name == ReplicaIDName || p.shard.parameters[shard] != name {
		return equivalence{}
	}
	switch leaf := p.leaves[name]; {
	case leaf.Varying:
	case leaf.Over.Is() && p.corresponds(global.Type, shard.Type, leaf.Over):
		return equivalence{sharded, leaf.Over}
	case !leaf.Over.Is() && global.Type.Equal(shard.Type):
		return equivalence{class: equal}
	}
	return equivalence{}
}

// similar reports whether two statements have the same op, attributes, and numbers of operands,
// results and regions, and results of the same dtypes.
func similar(g, s *ir.Statement) bool {
	if g.Mark != nil || s.Mark != nil || g.Op != s.Op || len(g.Operands) != len(s.Operands) || len(g.Regions) != len(s.Regions) {
		return false
	}
	return slices.EqualFunc(g.Results, s.Results, func(g, s *ir.Value) bool { return g.Type.DType == s.Type.DType }) &&
		slices.EqualFunc(g.Attributes, s.Attributes, sameAttribute)
}

func sameAttribute(g, s ir.Attribute) bool {
	if g.Key != s.Key || (g.Value == nil) != (s.Value == nil) {
		return false
	}
	if c, ok := g.Value.(*ir.Dense); ok && g.Key == ir.Elements {
		d, ok := s.Value.(*ir.Dense)
		return ok && slices.Equal(c.Elements(nil), d.Elements(nil)) // constant compares the types
	}
	return g.Value == nil || slices.Equal(g.Value.Append(nil), s.Value.Append(nil))
}

// statements returns the relation between results of two similar statements.
func (p *ShardProof) statements(g, s *ir.Statement, index int) equivalence {
	operands := make([]equivalence, len(g.Operands))
	identical := !perDevice[g.Op] && slices.EqualFunc(g.Results, s.Results, sameType)
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
		if c, ok := g.Attribute(ir.Elements).(*ir.Dense); ok && c.Splat != nil {
			return equivalence{class: splat}
		}
	case moving[g.Op] && operands[0].class == equal && elements(g.Operands[0].Type) == 1, moving[g.Op] && operands[0].class == splat:
		return equivalence{class: splat}
	case moving[g.Op] && g.Op != "stablehlo.transpose" && slices.Equal(g.Operands[0].Type.Dims, gOut.Dims) && slices.Equal(s.Operands[0].Type.Dims, sOut.Dims):
		return operands[0]
	case elementwise[g.Op]:
		return combined(g.Operands, operands)
	case g.Op == "stablehlo.reduce" && gOut.Equal(sOut) && p.allFinite(g, s):
		return equivalence{class: equal}
	}
	return equivalence{}
}

// combined returns the relation between results of an elementwise op.
func combined(values []*ir.Value, operands []equivalence) (result equivalence) {
	for i, e := range operands {
		switch {
		case e.class == equal && values[i].Type.Rank() == 0:
		case e.class == splat:
			if result.class == unproven {
				result = e
			}
		case e.class == sharded && (result.class != sharded || result.over == e.over):
			result = e
		default:
			return equivalence{}
		}
	}
	return result
}

// allFinite reports whether two similar reductions test whether all elements of a parameter are
// finite, for a parameter with Finite set.
func (p *ShardProof) allFinite(g, s *ir.Statement) bool {
	if len(g.Regions) != 1 || len(g.Operands) != 2 || g.Regions[0].Body[0].Op != "stablehlo.and" ||
		!p.sameRegions(g, s, map[*ir.Value]*ir.Value{}) || p.compare(g.Operands[1], s.Operands[1]).class != equal {
		return false
	}
	first := p.global.defined[g.Operands[1]]
	if first == nil {
		return false
	}
	if c, ok := first.Attribute(ir.Elements).(*ir.Dense); !ok || c.Splat == nil || c.Splat.Text != ir.True().Text {
		return false
	}
	test := p.global.defined[g.Operands[0]]
	if test == nil || test.Op != "stablehlo.is_finite" || p.compare(g.Operands[0], s.Operands[0]).class != sharded {
		return false
	}
	x := test.Operands[0]
	for from := p.global.defined[x]; from != nil && from.Op == "stablehlo.convert"; from = p.global.defined[x] {
		if !holds(x.Type.DType, from.Operands[0].Type.DType) {
			return false
		}
		x = from.Operands[0]
	}
	return p.leaves[p.global.parameters[x]].Finite
}

// holds reports whether each finite number of dtype narrow is finite in dtype wide.
func holds(wide, narrow dtypes.DType) bool {
	return wide == narrow || wide.IsFloat() && narrow.IsFloat() && wide.Bits() > narrow.Bits()
}

// sameRegions reports whether the regions of two statements have identical statements, which read
// only their own values and equal values. inner maps values of the regions of g to those of s.
func (p *ShardProof) sameRegions(g, s *ir.Statement, inner map[*ir.Value]*ir.Value) bool {
	return slices.EqualFunc(g.Regions, s.Regions, func(g, s *ir.Region) bool {
		return p.bind(g.Arguments, s.Arguments, inner) && slices.EqualFunc(g.Body, s.Body, func(g, s *ir.Statement) bool {
			return similar(g, s) && !perDevice[g.Op] && slices.EqualFunc(g.Operands, s.Operands, func(g, s *ir.Value) bool {
				if of, ok := inner[g]; ok {
					return of == s
				}
				return p.compare(g, s).class == equal
			}) && p.sameRegions(g, s, inner) && p.bind(g.Results, s.Results, inner)
		})
	})
}

// bind makes values of a region of the global trace correspond to values of the shard trace.
func (p *ShardProof) bind(g, s []*ir.Value, inner map[*ir.Value]*ir.Value) bool {
	if !slices.EqualFunc(g, s, sameType) {
		return false
	}
	for i := range g {
		inner[g[i]] = s[i]
	}
	return true
}

func sameType(g, s *ir.Value) bool { return g.Type.Equal(s.Type) }

// elements returns the number of elements of a tensor.
func elements(t ir.Type) int {
	n := 1
	for _, d := range t.Dims {
		n *= d
	}
	return n
}

// opSet returns the set of the named ops, of StableHLO unless the name has a dialect.
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
	// elementwise lists the ops in which each element of the result depends on the same elements of the
	// operands, and on operands that are scalars.
	elementwise = opSet("abs", "add", "and", "atan2", "cbrt", "ceil", "chlo.erf", "clamp", "compare", "complex", "convert",
		"cosine", "count_leading_zeros", "divide", "exponential", "exponential_minus_one", "floor", "imag", "is_finite", "log",
		"log_plus_one", "logistic", "maximum", "minimum", "multiply", "negate", "not", "or", "popcnt", "power", "real",
		"reduce_precision", "remainder", "round_nearest_afz", "round_nearest_even", "rsqrt", "select", "shift_left",
		"shift_right_arithmetic", "shift_right_logical", "sign", "sine", "sqrt", "subtract", "tan", "tanh", "xor")
	// moving are the ops that copy elements and compute nothing.
	moving = opSet("broadcast_in_dim", "reshape", "transpose")
	// perDevice lists ops whose results may differ between devices with equal operands, and ops
	// whose statement does not contain the complete computation.
	perDevice = opSet("replica_id", "partition_id", "infeed", "outfeed", "recv", "send", "custom_call", "composite",
		"collective_permute", "collective_broadcast", "all_to_all", "reduce_scatter", "func.call")
)
