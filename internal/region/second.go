package region

import (
	"slices"

	"github.com/gomlx/gomlx/core/graph"
)

// The gradient of a backward pass. A backward pass reads values of its forward pass, which are
// recomputed or kept when the program is assembled, so GoMLX cannot differentiate it. If a gradient
// of its results is requested, the forward and the backward pass are therefore built once more from
// copies of the region's nodes, as regions that [Trace] can differentiate: the forward pass returns
// the values at the start of each iteration, and the backward pass is a separate region that reads
// them. The gradient is the gradient of these two regions. It can be differentiated again in the
// same way.

type backwardPass struct {
	*tracer
	adjoints []*graph.Node // adjoints of the results of the forward pass, outside; nil if none
	// inputs are the sources, followed by the adjoints that are not nil.
	inputs []*graph.Node
	// cotangents are the current adjoints of the gradients. pending is set until gradients contains
	// the gradients of the inputs for these cotangents.
	cotangents, gradients []*graph.Node
	pending               bool
}

// makeDifferentiable returns nodes with the same values as the gradients of a backward pass. GoMLX
// can differentiate these nodes again.
func (r *tracer) makeDifferentiable(all, adjoints []*graph.Node) []*graph.Node {
	b := &backwardPass{tracer: r, adjoints: adjoints, inputs: slices.Clone(r.outerSources),
		cotangents: make([]*graph.Node, len(all))}
	for _, v := range adjoints {
		if v != nil {
			b.inputs = append(b.inputs, v)
		}
	}
	root := r.zeroFrom(b.inputs, func(i int) *graph.Node {
		if b.pending {
			b.gradients, b.pending = b.differentiate(), false
		}
		return b.gradients[i]
	})
	out := make([]*graph.Node, len(all))
	for i, x := range all {
		slot := &Slot{}
		r.target.EmitOp(x, Save{slot}, nil)
		out[i] = r.target.EmitOp(root, Load{slot}, func(v *graph.Node) *graph.Node {
			b.cotangents[i], b.pending = v, true
			return graph.ZerosLike(root)
		})
	}
	return out
}

// differentiate computes the gradients of the inputs of the backward pass from the adjoints of its
// results, which are stored in cotangents, and clears cotangents.
func (b *backwardPass) differentiate() []*graph.Node {
	if len(b.target.OpenPasses()) > 0 {
		b.fail("", nil, "a gradient of its gradient is requested inside another region", secondDerivativeHint)
	}
	// This gradient must end at the inputs, although an input may depend on another one.
	ending := true
	ends := make([]*graph.Node, len(b.inputs))
	for i, x := range b.inputs {
		ends[i] = b.target.EmitOp(x, CheckpointName{}, func(v *graph.Node) *graph.Node {
			if ending {
				return nil
			}
			return v
		})
	}
	adjoints := slices.Clone(b.adjoints)
	next := len(b.outerSources)
	for i, v := range adjoints {
		if v != nil {
			adjoints[i] = ends[next]
			next++
		}
	}
	var total *graph.Node
	for i, gradient := range b.rebuild(ends[:len(b.outerSources)], adjoints) {
		v := b.cotangents[i]
		if v == nil {
			continue
		}
		b.cotangents[i] = nil
		term := graph.ReduceAllSum(graph.Mul(gradient, v))
		if total == nil {
			total = term
		} else {
			total = graph.Add(total, graph.ConvertDType(term, total.DType()))
		}
	}
	gradients := graph.Gradient(total, ends...)
	ending = false
	return gradients
}

const secondDerivativeHint = "use remat.Block and loop.Layers for it without a region within another, or stop the " +
	"gradient (graph.StopGradient)"

// rebuild traces copies of the forward and the backward pass that GoMLX can differentiate. The
// copies read the given nodes instead of the adjoints and the sources. The sources are the inputs
// that have gradients. rebuild returns the gradients of the sources.
func (b *backwardPass) rebuild(sources, adjoints []*graph.Node) []*graph.Node {
	loop, isLoop := b.pass.Kind.(Loop)
	n := 1
	if isLoop {
		n = loop.N
	}
	// All sources are arguments here, including variables that the region reads.
	arguments := slices.Clone(b.arguments)
	leaves := slices.Clone(b.innerArguments) // the nodes inside that represent the arguments
	argumentOf := make([]int, len(sources))  // the argument of each source
	for i, leaf := range b.innerSources {
		argumentOf[i] = slices.Index(leaves, leaf)
		if argumentOf[i] < 0 {
			argumentOf[i] = len(arguments)
			arguments, leaves = append(arguments, Argument{Mapping: Identity{}}), append(leaves, leaf)
		}
		arguments[argumentOf[i]].Node = sources[i]
	}
	if isLoop {
		starts := b.stackCarriedStarts(arguments, leaves)
		for i, a := range arguments {
			switch a.Mapping.(type) {
			case Carry:
				arguments[i] = Argument{Node: graph.Reverse(starts[0], 0), Mapping: Slice{N: n}, Name: a.Name}
				starts = starts[1:]
			case Slice:
				arguments[i].Node = graph.Reverse(a.Node, 0)
			}
		}
	}
	firstAdjoint := len(arguments) // index of the first adjoint
	index := map[int]int{}
	for i, y := range b.results {
		v, carried := adjoints[i], false
		if _, carried = y.Mapping.(Carry); carried && v == nil && y.Node.DType().IsFloat() {
			v = graph.Zeros(y.Node.Graph(), y.Node.Shape())
		}
		if v == nil {
			continue
		}
		a := Argument{Node: v, Mapping: y.Mapping, Name: "adjoint of " + b.resultName(i)}
		if _, sliced := y.Mapping.(Slice); sliced {
			a.Node = graph.Reverse(v, 0)
		}
		index[i] = len(arguments)
		arguments = append(arguments, a)
	}
	results := b.sourceOrder(argumentOf)
	all := Trace(b.target, b.pass.Kind, arguments, func(in []*graph.Node) []Result {
		outputs := b.cloneResults(leaves, in[:firstAdjoint])
		var total *graph.Node
		for i := range b.results {
			if a, ok := index[i]; ok {
				term := graph.ReduceAllSum(graph.Mul(outputs[i], in[a]))
				if total == nil {
					total = term
				} else {
					total = graph.Add(total, graph.ConvertDType(term, total.DType()))
				}
			}
		}
		firstAdjoint := make([]*graph.Node, len(b.outerSources))
		for i := range b.outerSources {
			firstAdjoint[i] = in[argumentOf[i]]
		}
		gradients := graph.Gradient(total, firstAdjoint...)
		list := make([]Result, len(results))
		for i, source := range results {
			list[i] = Result{Node: gradients[source], Mapping: b.sourceMappings[source]}
		}
		return list
	})
	gradients := make([]*graph.Node, len(b.outerSources))
	for i, source := range results {
		gradients[source] = all[i]
		if _, sliced := b.sourceMappings[source].(Slice); sliced {
			gradients[source] = graph.Reverse(all[i], 0)
		}
	}
	return gradients
}

// sourceOrder returns the indices of the sources (the inputs that have gradients) in the order in
// which the backward pass returns their gradients: first the state of a loop, in the order of its
// adjoints, then the other sources.
func (b *backwardPass) sourceOrder(argumentOf []int) (sources []int) {
	for i, y := range b.results {
		if _, carried := y.Mapping.(Carry); carried && y.Node.DType().IsFloat() {
			sources = append(sources, slices.Index(argumentOf, b.carriedFrom[i]))
		}
	}
	for i, c := range b.sourceMappings {
		if _, carried := c.(Carry); !carried {
			sources = append(sources, i)
		}
	}
	return sources
}

// stackCarriedStarts runs the loop again to compute its intermediate states. For each carried
// argument, it returns a stack of the values at the start of each iteration.
func (b *backwardPass) stackCarriedStarts(arguments []Argument, leaves []*graph.Node) []*graph.Node {
	carried := 0
	all := Trace(b.target, b.pass.Kind, arguments, func(in []*graph.Node) (list []Result) {
		outputs := b.cloneResults(leaves, in)
		for i, y := range b.results {
			if _, ok := y.Mapping.(Carry); ok {
				list = append(list, Result{Node: outputs[i], Mapping: y.Mapping, Name: y.Name})
				carried++
			}
		}
		for i, a := range arguments {
			if _, ok := a.Mapping.(Carry); ok {
				list = append(list, Result{Node: in[i], Mapping: Slice{N: b.pass.Kind.(Loop).N}, Name: a.Name})
			}
		}
		return list
	})
	return all[carried:]
}

// cloneResults copies the ops of the region, and replaces each node in leaves by the node with the
// same index in replacements. It returns the copies of the results.
func (b *backwardPass) cloneResults(leaves, replacements []*graph.Node) []*graph.Node {
	copies := map[*graph.Node]*graph.Node{}
	for i, leaf := range leaves {
		copies[leaf] = replacements[i]
	}
	var clone func(node *graph.Node) *graph.Node
	clone = func(node *graph.Node) *graph.Node {
		if copies[node] == nil {
			y, ok := node, true
			if node.Id() >= b.innerArguments[0].Id() && node.Type() != graph.NodeTypeParameter {
				y, ok = b.target.CloneNode(node, clone)
			}
			if !ok {
				b.fail("", nil, "a gradient of its gradient is requested, and it contains another region",
					secondDerivativeHint)
			}
			copies[node] = y
		}
		return copies[node]
	}
	outputs := make([]*graph.Node, len(b.results))
	for i, y := range b.results {
		outputs[i] = clone(y.Node)
	}
	return outputs
}
