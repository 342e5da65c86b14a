package remat

import (
	"fmt"

	"github.com/gomlx/gomlx/core/graph"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/internal/region"
)

// Block runs f on x as a block of the step, of which the backward pass keeps what the policy says
// and computes the rest again. It returns what f returns, a node of any shape.
//
// f may write variables of the strategy. The backward pass, which computes values again, does not
// write again.
//
// f may read variables, integers and constants from outside. Pass any other node from outside as an
// argument (see [BlockMany]). A block has a gradient but no second one. Block panics with an
// [*errkind.Fault], as GoMLX's graph functions panic with their errors.
func Block(keep Policy, x *graph.Node, f func(x *graph.Node) *graph.Node) *graph.Node {
	if f == nil {
		return BlockMany(keep, []*graph.Node{x}, nil)[0]
	}
	return BlockMany(keep, []*graph.Node{x}, func(in []*graph.Node) []*graph.Node { return []*graph.Node{f(in[0])} })[0]
}

// BlockMany runs a block as [Block] does, with several arguments and results. It needs at least one
// argument and one result.
func BlockMany(keep Policy, inputs []*graph.Node, f func(inputs []*graph.Node) []*graph.Node) []*graph.Node {
	if f == nil {
		fail("there is no function", "pass the function that builds the block")
	}
	if len(inputs) == 0 {
		fail("there are no arguments", "pass the nodes that the block reads")
	}
	arguments := make([]region.Argument, len(inputs))
	for i, x := range inputs {
		if x == nil {
			fail(fmt.Sprintf("argument %d is nil", i), "pass nodes of the step")
		}
		arguments[i] = region.Argument{Node: x, Crossing: region.Same{}}
	}
	g := inputs[0].Graph()
	target, ok := g.Backend().(region.Target)
	if !ok {
		fail(fmt.Sprintf("a graph of backend %q has no regions", g.Backend().Name()), "trace the step through a strategy")
	}
	writes := region.Watch(target, g)
	defer func() {
		if e := recover(); e != nil {
			writes.Restore()
			panic(e)
		}
	}()
	n, written := 0, []region.StepVariable(nil)
	all := region.Trace(target, region.Block{Keep: keep.keep}, arguments, func(in []*graph.Node) []region.Result {
		var results []region.Result
		keep.Check("remat:", g, func() {
			for _, y := range f(in) {
				results = append(results, region.Result{Node: y, Crossing: region.Same{}})
			}
		})
		n, written = len(results), writes.Written()
		for _, h := range written {
			results = append(results, region.Result{Node: h.Now(), Crossing: region.Same{}, Name: "variable " + h.Name()})
		}
		return results
	})
	writes.Restore()
	for i, h := range written {
		h.Set(all[n+i])
	}
	return all[:n:n]
}

func fail(reason, hint string) {
	panic(&errkind.Fault{Op: "remat", Reason: reason, Hint: hint, Class: errkind.ValueError})
}

// Name gives x a name, by which policies know it, and returns x as a node to go on with. Outside of
// blocks and loops it is x. Several tensors may have one name. Name panics with an [*errkind.Fault]
// if the name is empty.
func Name(x *graph.Node, name string) *graph.Node {
	switch {
	case x == nil:
		fail("a nil node has no name", "pass a node of the step")
	case name == "":
		fail("a name is empty", "give the tensor a name")
	}
	target, ok := x.Graph().Backend().(region.Target)
	if !ok {
		return x
	}
	if seen, ok := x.Graph().State(seenKey{}).(*nameScope); ok {
		for ; seen != nil; seen = seen.around {
			seen.names[name] = true
		}
	}
	return target.EmitBorder(x, region.Name{Name: name}, func(v *graph.Node) *graph.Node { return v })
}

// nameScope are the names that tensors of the block at hand have, and of the blocks around it.
type nameScope struct {
	names  map[string]bool
	around *nameScope
}

type seenKey struct{}

// Check builds a block and panics if a name of the policy is that of no tensor of it. It is for
// packages that have blocks of their own; op is how they begin their errors, such as "loop:".
func (p Policy) Check(op string, g *graph.Graph, build func()) {
	around, _ := g.State(seenKey{}).(*nameScope)
	now := &nameScope{names: map[string]bool{}, around: around}
	g.AttachState(seenKey{}, now)
	defer g.AttachState(seenKey{}, around)
	before := len(g.Nodes())
	build()
	if (p.keep.Some || p.keep.Host) && len(g.Nodes()) > before {
		g.AttachState(appliedKey{}, true)
	}
	for _, name := range p.keep.Names {
		if !now.names[name] {
			panic(&errkind.Fault{Op: op, Subject: "policy " + p.String(), Reason: fmt.Sprintf("no tensor of the block has the name %q", name),
				Hint: "give it to one by remat.Name, or leave it out of the policy", Class: errkind.NotFoundError})
		}
	}
}

type appliedKey struct{}

// Applied reports whether a block or a layer loop of the graph with operations in it has another policy
// than [Everything]. It is for programs whose policy is an option of the command line, which has no
// effect on a model without blocks.
func Applied(g *graph.Graph) bool { return g.State(appliedKey{}) != nil }
