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

// Arg is an argument of [Region]: a tensor of the replica, and its sharding over the logical
// devices.
type Arg struct {
	Node *graph.Node
	// Spec lists, for each dimension, the axes that split it, slowest first. Dimensions beyond the
	// rank of the spec are not split, so the zero Spec is a replicated tensor.
	Spec sharding.Spec
}

// In returns the argument x with the spec sharding.P(parts...). Each entry of parts is nil for a
// dimension that is not split, the name of an axis, or a []string of axes. Without parts, x is
// replicated.
func In(x *graph.Node, parts ...any) Arg { return Arg{Node: x, Spec: sharding.P(parts...)} }

// Region runs f on each logical device of the replica. f receives the device's shards of the
// arguments, and Region assembles the results of the devices into tensors of the replica. It
// corresponds to JAX's shard_map. axes are the manual axes of the region; nil means all logical
// axes.
//
// f is called once, while the step is traced. Its arguments have the shapes of shards: a dimension
// of size n that is split over axes with p devices has size n/p. f must return one node for each
// element of out. A dimension of a result that is split over axes grows by the number of devices on
// these axes.
//
// If the spec of a result does not name an axis of the region, the result must be equal on all
// devices of that axis. Region rejects results that may differ: results that depend on a split
// argument, [Index], [ReduceScatter], [AllToAll] or [Permute], unless [AllReduce], [AllGather] or
// [Broadcast] makes them equal.
//
// f can use variables and constants from outside, which are replicated. Pass other outside nodes as
// arguments. A value that f computes without returning it, such as the random state that
// layers.Dropout stores, can be used outside if it is equal on all devices.
//
// The gradient of an argument or variable is summed over the axes that its spec does not name. The
// gradient of a region cannot be differentiated again. Region panics with an [*errkind.Fault].
func Region(axes []string, in []Arg, out []sharding.Spec, f func(in []*graph.Node) []*graph.Node) []*graph.Node {
	const op = "manual:"
	if len(in) == 0 {
		fail(op, "", "there are no arguments", "pass the nodes that the region reads")
	}
	target := requireTarget(op, in[0].Node)
	mesh := target.LogicalMesh()
	if axes == nil {
		axes = mesh.AxisNames()
	}
	checkAxes(op, mesh, axes)
	if outer := region.ManualAxes(target); slices.ContainsFunc(axes,
		func(name string) bool { return slices.Contains(outer, name) }) {
		fail(op, fmt.Sprintf("a region over %s", joinNames(axes)),
			fmt.Sprintf("inside a region that is manual over %s already", joinNames(outer)),
			"name axes that are not manual yet")
	}
	if f == nil {
		fail(op, "", "the function is nil", "pass the function that each device runs")
	}
	arguments := make([]region.Argument, len(in))
	for i, a := range in {
		if a.Node == nil || a.Node.Graph() != in[0].Node.Graph() {
			fail(op, fmt.Sprintf("argument %d", i), "it is not a node of this graph", "pass nodes of the step")
		}
		arguments[i] = region.Argument{Node: a.Node, Mapping: newShard(mesh, axes, fmt.Sprintf("argument %d", i),
			a.Node, a.Spec, true)}
	}
	return region.Trace(target, region.Manual{Axes: mesh.SortAxes(axes)}, arguments,
		func(in []*graph.Node) []region.Result {
			nodes := f(in)
			if len(nodes) != len(out) {
				fail(op, "", fmt.Sprintf("the function returns %d results, but out has %d specs", len(nodes), len(out)),
					"pass one spec for each result")
			}
			results := make([]region.Result, len(nodes))
			for i, y := range nodes {
				subject := fmt.Sprintf("result %d", i)
				if y == nil {
					fail(op, subject, "it is nil", "return nodes computed from the arguments")
				}
				results[i] = region.Result{Node: y, Mapping: newShard(mesh, axes, subject, y, out[i], false)}
			}
			return results
		})
}

// newShard validates the spec of an argument or result x of a region over axes, and returns the
// corresponding region.Shard. unsharded is true for arguments, whose shape is the shape of the
// unsharded tensor.
func newShard(mesh sharding.Mesh, axes []string, subject string, x *graph.Node, spec sharding.Spec,
	unsharded bool) region.Shard {
	const op = "manual:"
	shape := x.Shape().Dimensions
	subject = fmt.Sprintf("%s of shape %v", subject, shape)
	if err := spec.Err(); err != nil {
		panic(&errkind.Fault{Op: op, Subject: subject, Class: errkind.ValueError, Err: err})
	}
	if spec.Rank() > len(shape) {
		fail(op, subject, fmt.Sprintf("its spec %q has %d dimensions", spec, spec.Rank()),
			"write at most one entry for each dimension")
	}
	if len(spec.ReplicatedAxes()) > 0 {
		fail(op, subject, fmt.Sprintf("its spec %q lists replicated axes", spec),
			"remove them; a tensor is replicated over the axes that no dimension names")
	}
	shard := region.Shard{Axes: make([][]sharding.Axis, len(shape))}
	used := map[string]bool{}
	for i, dim := range spec.Dims() {
		if dim.Open {
			fail(op, subject, fmt.Sprintf("dimension %d of its spec %q is open", i, spec), "name its axes, or none")
		}
		parts := 1
		for _, name := range dim.Axes {
			size, ok := mesh.AxisSize(name)
			switch {
			case !ok:
				fail(op, subject, fmt.Sprintf("dimension %d is split over axis %q, which the replica does not have",
					i, name), "name one of "+mesh.String())
			case !slices.Contains(axes, name):
				fail(op, subject, fmt.Sprintf("dimension %d is split over axis %q, over which the region is not manual", i, name),
					"name one of "+joinNames(axes)+", or make the region manual over the axis")
			case used[name]:
				fail(op, subject, fmt.Sprintf("its spec %q names axis %q twice", spec, name), "name an axis once")
			}
			used[name] = true
			parts *= size
			shard.Axes[i] = append(shard.Axes[i], sharding.Axis{Name: name, Size: size})
		}
		if unsharded && shape[i]%parts != 0 {
			fail(op, subject, fmt.Sprintf("dimension %d of size %d is not divisible into %d shards (%s)", i, shape[i],
				parts, joinNames(dim.Axes)),
				fmt.Sprintf("pad the dimension to %d or split another one", (shape[i]+parts-1)/parts*parts))
		}
	}
	return shard
}

func requireTarget(op string, x *graph.Node) region.Target {
	if x == nil {
		fail(op, "", "the node is nil", "pass a node of the step")
	}
	return requireGraphTarget(op, x.Graph())
}

func requireGraphTarget(op string, g *graph.Graph) region.Target {
	if g == nil {
		fail(op, "", "the graph is nil", "pass the graph of the step")
	}
	t, ok := g.Backend().(region.Target)
	if !ok {
		fail(op, "", fmt.Sprintf("a graph of backend %q has no logical devices", g.Backend().Name()),
			"trace the step through a strategy")
	}
	return t
}

func checkAxes(op string, mesh sharding.Mesh, axes []string) {
	if len(axes) == 0 {
		fail(op, "", "the list of axes is empty", "use axes of "+mesh.String()+", or pass nil for all of them")
	}
	for i, name := range axes {
		if _, ok := mesh.AxisSize(name); !ok {
			fail(op, fmt.Sprintf("axis %q", name), "the replica does not have it",
				"use one of "+mesh.String()+", or add the axis to the replica")
		}
		if slices.Contains(axes[:i], name) {
			fail(op, fmt.Sprintf("axis %q", name), "it is used twice", "use each axis once")
		}
	}
}

func fail(op, subject, reason, hint string) {
	if subject == "" {
		op = strings.TrimSuffix(op, ":")
	}
	panic(&errkind.Fault{Op: op, Subject: subject, Reason: reason, Hint: hint, Class: errkind.ValueError})
}

func joinNames(names []string) string { return strings.Join(names, ", ") }
