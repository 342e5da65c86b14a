package manual

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gomlx/gomlx/core/graph"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/internal/region"
	"github.com/tpustrategy/tpustrategy/sharding"
)

// Arg is an argument of a region: a tensor of the replica, and how it is cut.
type Arg struct {
	Node *graph.Node
	// Spec names, for each dimension, the axes over which the dimension is cut, the slowest first.
	// Dimensions beyond the spec are whole, so that the zero Spec is that of a tensor that is whole
	// on each device.
	Spec sharding.Spec
}

// In returns the argument x that is cut as sharding.P(parts...) says: one part for each dimension,
// nil for a dimension that stays whole, the name of an axis, or a []string of axes. Without parts
// each device has the whole of x.
func In(x *graph.Node, parts ...any) Arg { return Arg{Node: x, Spec: sharding.P(parts...)} }

// Region runs f on each logical device of the replica, on the device's own shards of the arguments,
// and returns tensors of the replica that are put together of the devices' results: JAX's
// shard_map. axes are the logical axes over which the region is manual; nil stands for all of them.
//
// f is called once, with a node for each argument that has a shard's shape: a dimension of size n
// that is cut over axes of a product p has size n/p. f returns one node for each of out. A result's
// dimension that out cuts over axes grows by the axes' sizes. A result whose spec does not name an
// axis of the region has to be equal on the devices of that axis. Region refuses a result that may
// differ there: what follows from an argument that is cut, from [Index], [ReduceScatter],
// [AllToAll] or [Permute] may, and what comes from [AllReduce], [AllGather] or [Broadcast] may not.
//
// f may use variables and constants from outside, of which each device has the whole. Pass other
// nodes from outside as arguments. A value that f makes without returning it, such as the next
// state of a random generator that layers.Dropout stores, may be used outside if it is equal on all
// devices.
//
// The region has a gradient, but no second one. The gradient of an argument or a variable is summed
// over the axes that its spec does not name.
//
// Region panics with an [*errkind.Fault].
func Region(axes []string, in []Arg, out []sharding.Spec, f func(in []*graph.Node) []*graph.Node) []*graph.Node {
	const op = "manual:"
	if len(in) == 0 {
		fail(op, "", "there are no arguments", "pass the nodes that the region reads")
	}
	target := targetOf(op, in[0].Node)
	mesh := target.LogicalMesh()
	if axes == nil {
		axes = mesh.AxisNames()
	}
	checkAxes(op, mesh, axes)
	if outer := region.ManualAxes(target); slices.ContainsFunc(axes, func(name string) bool { return slices.Contains(outer, name) }) {
		fail(op, fmt.Sprintf("a region over %s", list(axes)), fmt.Sprintf("inside a region that is manual over %s already", list(outer)),
			"name axes that are not manual yet")
	}
	if f == nil {
		fail(op, "", "no function", "pass the function that a device runs")
	}
	arguments := make([]region.Argument, len(in))
	for i, a := range in {
		if a.Node == nil || a.Node.Graph() != in[0].Node.Graph() {
			fail(op, fmt.Sprintf("argument %d", i), "it is not a node of this graph", "pass nodes of the step")
		}
		arguments[i] = region.Argument{Node: a.Node, Crossing: crossing(mesh, axes, fmt.Sprintf("argument %d", i), a.Node, a.Spec, true)}
	}
	return region.Trace(target, region.Manual{Axes: mesh.SortAxes(axes)}, arguments, func(in []*graph.Node) []region.Result {
		nodes := f(in)
		if len(nodes) != len(out) {
			fail(op, "", fmt.Sprintf("the function returns %d results, and there are specs of %d", len(nodes), len(out)), "give one spec for each result")
		}
		results := make([]region.Result, len(nodes))
		for i, y := range nodes {
			what := fmt.Sprintf("result %d", i)
			if y == nil {
				fail(op, what, "it is nil", "return nodes made from the arguments")
			}
			results[i] = region.Result{Node: y, Crossing: crossing(mesh, axes, what, y, out[i], false)}
		}
		return results
	})
}

// crossing is how a tensor crosses the border of a region over axes. cut says that its shape is
// that outside.
func crossing(mesh sharding.Mesh, axes []string, what string, x *graph.Node, spec sharding.Spec, cut bool) region.Shard {
	const op = "manual:"
	shape := x.Shape().Dimensions
	what = fmt.Sprintf("%s of shape %v", what, shape)
	if err := spec.Err(); err != nil {
		panic(&errkind.Fault{Op: op, Subject: what, Class: errkind.ValueError, Err: err})
	}
	if spec.Rank() > len(shape) {
		fail(op, what, fmt.Sprintf("its spec %q has %d dimensions", spec, spec.Rank()), "give one part for each dimension at most")
	}
	if len(spec.ReplicatedAxes()) > 0 {
		fail(op, what, fmt.Sprintf("its spec %q lists replicated axes", spec), "leave them out: a tensor is whole over the axes that no dimension names")
	}
	shard := region.Shard{Axes: make([][]sharding.Axis, len(shape))}
	used := map[string]bool{}
	for i, dim := range spec.Dims() {
		if dim.Open {
			fail(op, what, fmt.Sprintf("dimension %d of its spec %q is open", i, spec), "name its axes, or none")
		}
		parts := 1
		for _, name := range dim.Axes {
			size, ok := mesh.AxisSize(name)
			switch {
			case !ok:
				fail(op, what, fmt.Sprintf("dimension %d is cut over axis %q, which the replica does not have", i, name), "name one of "+mesh.String())
			case !slices.Contains(axes, name):
				fail(op, what, fmt.Sprintf("dimension %d is cut over axis %q, over which the region is not manual", i, name), "name one of "+list(axes)+", or make the region manual over the axis")
			case used[name]:
				fail(op, what, fmt.Sprintf("its spec %q names axis %q twice", spec, name), "name an axis once")
			}
			used[name] = true
			parts *= size
			shard.Axes[i] = append(shard.Axes[i], sharding.Axis{Name: name, Size: size})
		}
		if cut && shape[i]%parts != 0 {
			fail(op, what, fmt.Sprintf("dimension %d of size %d is not divisible into %d shards (%s)", i, shape[i], parts, list(dim.Axes)),
				fmt.Sprintf("pad the dimension to %d or cut another one", (shape[i]+parts-1)/parts*parts))
		}
	}
	return shard
}

func targetOf(op string, x *graph.Node) region.Target {
	if x == nil {
		fail(op, "", "a nil node", "pass a node of the step")
	}
	return targetOfGraph(op, x.Graph())
}

func targetOfGraph(op string, g *graph.Graph) region.Target {
	if g == nil {
		fail(op, "", "a nil graph", "pass the graph of the step")
	}
	t, ok := g.Backend().(region.Target)
	if !ok {
		fail(op, "", fmt.Sprintf("a graph of backend %q has no logical devices", g.Backend().Name()), "trace the step through a strategy")
	}
	return t
}

// checkAxes refuses names that the replica lacks, or that are given twice.
func checkAxes(op string, mesh sharding.Mesh, axes []string) {
	if len(axes) == 0 {
		fail(op, "", "no axes", "name one of "+mesh.String()+", or pass nil for all of them")
	}
	for i, name := range axes {
		if _, ok := mesh.AxisSize(name); !ok {
			fail(op, fmt.Sprintf("axis %q", name), "the replica does not have it", "name one of "+mesh.String()+", or give the replica the axis")
		}
		if slices.Contains(axes[:i], name) {
			fail(op, fmt.Sprintf("axis %q", name), "it is named twice", "name an axis once")
		}
	}
}

func fail(op, subject, reason, hint string) {
	panic(&errkind.Fault{Op: op, Subject: subject, Reason: reason, Hint: hint, Class: errkind.ValueError})
}

func list(names []string) string { return strings.Join(names, ", ") }
