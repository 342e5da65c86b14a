package remat

import (
	"fmt"

	"github.com/gomlx/gomlx/core/graph"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/internal/region"
)

// Block returns f(x). The backward pass recomputes the values that f computes, except for the
// values that the policy keeps. The result can have any shape.
//
// f may read and write variables of the strategy; recomputing does not repeat the writes. f may
// also use integers and constants from outside. Pass any other outside node as an argument (see
// [BlockMany]). The gradient of a block cannot be differentiated again. Like GoMLX's graph
// functions, Block panics with its errors, which are [*errkind.Fault] values.
func Block(keep Policy, x *graph.Node, f func(x *graph.Node) *graph.Node) *graph.Node {
	if f == nil {
		return BlockMany(keep, []*graph.Node{x}, nil)[0]
	}
	return BlockMany(keep, []*graph.Node{x}, func(in []*graph.Node) []*graph.Node { return []*graph.Node{f(in[0])} })[0]
}

// BlockMany is like [Block], but with several arguments and results. At least one argument and one
// result are required.
func BlockMany(keep Policy, inputs []*graph.Node, f func(inputs []*graph.Node) []*graph.Node) []*graph.Node {
	if f == nil {
		fail("the function is nil", "pass the function that builds the block")
	}
	if len(inputs) == 0 {
		fail("there are no arguments", "pass the nodes that the block reads")
	}
	arguments := make([]region.Argument, len(inputs))
	for i, x := range inputs {
		if x == nil {
			fail(fmt.Sprintf("argument %d is nil", i), "pass nodes of the step")
		}
		arguments[i] = region.Argument{Node: x, Mapping: region.Identity{}}
	}
	g := inputs[0].Graph()
	target, ok := g.Backend().(region.Target)
	if !ok {
		fail(fmt.Sprintf("a graph of backend %q has no regions", g.Backend().Name()),
			"trace the step through a strategy")
	}
	writes := region.RecordWrites(target, g)
	defer func() {
		if e := recover(); e != nil {
			writes.Restore()
			panic(e)
		}
	}()
	n, written := 0, []region.StepVariable(nil)
	all := region.Trace(target, region.Block{Policy: keep.policy}, arguments, func(in []*graph.Node) []region.Result {
		var results []region.Result
		keep.CheckNames("remat:", g, func() {
			for _, y := range f(in) {
				results = append(results, region.Result{Node: y, Mapping: region.Identity{}})
			}
		})
		n, written = len(results), writes.Written()
		for _, h := range written {
			results = append(results, region.Result{Node: h.Value(), Mapping: region.Identity{},
				Name: "variable " + h.Name()})
		}
		return results
	})
	writes.Restore()
	for i, h := range written {
		h.SetValue(all[n+i])
	}
	return all[:n:n]
}

func fail(reason, hint string) {
	panic(&errkind.Fault{Op: "remat", Reason: reason, Hint: hint, Class: errkind.ValueError})
}

// Name assigns a name to x, which policies can select with [Names], and returns a node with the
// same value. Several tensors can have the same name. Outside of blocks and loops, Name has no
// effect. It panics with an [*errkind.Fault] if the name is empty.
func Name(x *graph.Node, name string) *graph.Node {
	switch {
	case x == nil:
		fail("the node is nil", "pass a node of the step")
	case name == "":
		fail("the name is empty", "pass a name for the tensor")
	}
	target, ok := x.Graph().Backend().(region.Target)
	if !ok {
		return x
	}
	if seen, ok := x.Graph().State(nameScopeKey{}).(*nameScope); ok {
		for ; seen != nil; seen = seen.outer {
			seen.names[name] = true
		}
	}
	return target.EmitOp(x, region.CheckpointName{Name: name}, func(v *graph.Node) *graph.Node { return v })
}

// nameScope contains the names of the tensors in a block, and a reference to the names of the
// enclosing block.
type nameScope struct {
	names map[string]bool
	outer *nameScope
}

type nameScopeKey struct{}

// CheckNames calls build, which builds a block, and panics if the policy selects a name that no
// tensor of the block has. op is the prefix of the error message, such as "loop:". It is for
// packages that implement blocks.
func (p Policy) CheckNames(op string, g *graph.Graph, build func()) {
	outer, _ := g.State(nameScopeKey{}).(*nameScope)
	scope := &nameScope{names: map[string]bool{}, outer: outer}
	g.AttachState(nameScopeKey{}, scope)
	defer g.AttachState(nameScopeKey{}, outer)
	before := len(g.Nodes())
	build()
	if (p.policy.Selective || p.policy.OnHost) && len(g.Nodes()) > before {
		g.AttachState(appliedKey{}, true)
	}
	for _, name := range p.policy.Names {
		if !scope.names[name] {
			panic(&errkind.Fault{Op: op, Subject: "policy " + p.String(),
				Reason: fmt.Sprintf("no tensor of the block has the name %q", name),
				Hint:   "name a tensor with remat.Name, or remove the name from the policy",
				Class:  errkind.NotFoundError})
		}
	}
}

type appliedKey struct{}

// Applied reports whether the graph has a nonempty block or loop with a policy other than
// [Everything]. Programs use it to check that a policy from the command line has an effect.
func Applied(g *graph.Graph) bool { return g.State(appliedKey{}) != nil }
