package manual

import (
	"fmt"
	"slices"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/gomlx/core/graph"

	"github.com/tpustrategy/tpustrategy/internal/enum"
	"github.com/tpustrategy/tpustrategy/internal/region"
)

// Reduction is the operation with which [AllReduce] combines the values of the devices.
type Reduction int

const (
	// Sum adds the values.
	Sum Reduction = iota
	// Mean adds the values and divides the sum by the number of devices.
	Mean
	// Max and Min return the elementwise maximum and minimum of the values.
	Max
	Min
)

// String returns the name of the reduction.
func (r Reduction) String() string { return enum.Name(r, "sum", "mean", "max", "min") }

// AllReduce returns the reduction of x over the devices of the axes, on each of these devices. It
// corresponds to JAX's psum, pmean, pmax and pmin. Sum and Mean have a gradient; for Max and Min,
// the gradient must be stopped before the call. A call costs one all-reduce, or nothing if x is
// known to be equal on all devices.
func AllReduce(x *graph.Node, reduction Reduction, axes ...string) *graph.Node {
	c := newCollective("manual: all_reduce", x, axes)
	switch reduction {
	case Sum, Mean:
		if x.DType() == dtypes.Bool {
			c.fail("it has dtype Bool, which has no sum", "use Max for any and Min for all")
		}
		if reduction == Mean && x.DType().IsInt() {
			c.fail(fmt.Sprintf("the mean of integers (%s) is no integer", x.DType()),
				"convert it to a float, or take the Sum")
		}
		y := c.emit(region.AllReduce{Axes: c.axes, Reduction: region.Sum},
			func(v *graph.Node) *graph.Node { return AllReduce(v, Sum, c.axes...) })
		if reduction == Mean {
			return graph.DivScalar(y, float64(c.devices))
		}
		return y
	case Max, Min:
		if x.DType().IsComplex() {
			c.fail("complex numbers have no order", "reduce the real and the imaginary parts")
		}
		op := region.Max
		if reduction == Min {
			op = region.Min
		}
		return c.emit(region.AllReduce{Axes: c.axes, Reduction: op}, func(*graph.Node) *graph.Node {
			c.fail("only the sum and the mean have a gradient, not "+reduction.String(),
				"stop the gradient before it with graph.StopGradient")
			return nil
		})
	}
	c.fail(fmt.Sprintf("%s is no reduction", reduction), "use Sum, Mean, Max or Min")
	return nil
}

// AllGather concatenates x from all devices of the axes along dimension dim and returns the result
// on each of these devices. The size of the dimension is multiplied by the number of devices. A
// negative dim counts from the end. The gradient is [ReduceScatter].
func AllGather(x *graph.Node, dim int, axes ...string) *graph.Node {
	c := newCollective("manual: all_gather", x, axes)
	dim = c.resolveDim("dimension", dim)
	return c.emit(region.AllGather{Axes: c.axes, Dim: dim}, func(v *graph.Node) *graph.Node {
		return ReduceScatter(v, dim, c.axes...)
	})
}

// ReduceScatter sums x over the devices of the axes, splits the sum along dimension dim, and
// returns one shard on each device. The number of devices must divide the size of the dimension. A
// negative dim counts from the end. The gradient is [AllGather].
func ReduceScatter(x *graph.Node, dim int, axes ...string) *graph.Node {
	c := newCollective("manual: reduce_scatter", x, axes)
	dim = c.resolveDim("dimension", dim)
	c.checkDivisible(dim)
	if x.DType() == dtypes.Bool {
		c.fail("it has dtype Bool, which has no sum", "convert it to a number")
	}
	return c.emit(region.ReduceScatter{Axes: c.axes, Dim: dim}, func(v *graph.Node) *graph.Node {
		return AllGather(v, dim, c.axes...)
	})
}

// AllToAll splits x along dimension split into one shard for each device of the axes, sends shard i
// to device i, and concatenates the received shards along dimension concat, in the order of the
// devices. The number of devices must divide the size of dimension split. Negative dimensions count
// from the end. The gradient is AllToAll with exchanged dimensions.
func AllToAll(x *graph.Node, split, concat int, axes ...string) *graph.Node {
	c := newCollective("manual: all_to_all", x, axes)
	split, concat = c.resolveDim("split dimension", split), c.resolveDim("concat dimension", concat)
	c.checkDivisible(split)
	return c.emit(region.AllToAll{Axes: c.axes, Split: split, Concat: concat}, func(v *graph.Node) *graph.Node {
		return AllToAll(v, concat, split, c.axes...)
	})
}

// Permute sends x from device pair[0] to device pair[1] for each of the pairs. It returns the
// received value, or zeros on a device that receives nothing. Devices are numbered as in [Index].
// Each device can send at most once and receive at most once. The gradient is the Permute in the
// opposite direction.
func Permute(x *graph.Node, pairs [][2]int, axes ...string) *graph.Node {
	c := newCollective("manual: permute", x, axes)
	var from, to []int
	for _, pair := range pairs {
		for _, device := range pair {
			if device < 0 || device >= c.devices {
				c.fail(fmt.Sprintf("pair %v names device %d of %d", pair, device, c.devices),
					fmt.Sprintf("use numbers from 0 to %d", c.devices-1))
			}
		}
		if slices.Contains(from, pair[0]) {
			c.fail(fmt.Sprintf("device %d sends twice", pair[0]),
				"let a device send once: send to several with AllGather or Broadcast")
		}
		if slices.Contains(to, pair[1]) {
			c.fail(fmt.Sprintf("device %d receives twice", pair[1]),
				"let a device receive once: combine values with AllReduce")
		}
		from, to = append(from, pair[0]), append(to, pair[1])
	}
	pairs = slices.Clone(pairs)
	return c.emit(region.Permute{Axes: c.axes, Pairs: pairs}, func(v *graph.Node) *graph.Node {
		back := make([][2]int, len(pairs))
		for i, pair := range pairs {
			back[i] = [2]int{pair[1], pair[0]}
		}
		return Permute(v, back, c.axes...)
	})
}

// Shift is a [Permute] along the ring of devices: device i sends to device i+offset, modulo the
// number of devices. offset can be negative.
func Shift(x *graph.Node, offset int, axes ...string) *graph.Node {
	c := newCollective("manual: shift", x, axes)
	pairs := make([][2]int, c.devices)
	for i := range pairs {
		pairs[i] = [2]int{i, ((i+offset)%c.devices + c.devices) % c.devices}
	}
	return Permute(x, pairs, c.axes...)
}

// Broadcast copies x bit by bit from one device to all devices of the axes. It costs an all-reduce,
// in which the other devices contribute zeros.
func Broadcast(x *graph.Node, device int, axes ...string) *graph.Node {
	c := newCollective("manual: broadcast", x, axes)
	if device < 0 || device >= c.devices {
		c.fail(fmt.Sprintf("device %d of %d", device, c.devices), fmt.Sprintf("use a number from 0 to %d", c.devices-1))
	}
	g := x.Graph()
	here := graph.Equal(Index(g, c.axes...), graph.Const(g, int32(device)))
	if x.DType() == dtypes.Bool {
		c.x = graph.And(x, here)
	} else {
		// The dtype of GoMLX's zeros is Uint8 for integers with less than 8 bits.
		c.x = graph.Where(here, x, graph.ConvertDType(graph.ZerosLike(x), x.DType()))
	}
	return c.emit(region.AllReduce{Axes: c.axes, Reduction: region.Broadcast},
		func(v *graph.Node) *graph.Node { return AllReduce(v, Sum, c.axes...) })
}

// Index returns the index of the device on the axes as an int32 scalar: the row-major index of its
// coordinates, with the last axis fastest. The axes must belong to the innermost region; pass the
// index on an axis of an outer region as an argument.
func Index(g *graph.Graph, axes ...string) *graph.Node {
	const op = "manual: index"
	t := requireGraphTarget(op, g)
	axes, _ = resolveAxes(op, "", t, g, axes)
	var inner []string
	for _, p := range t.OpenPasses() {
		if kind, ok := p.Kind.(region.Manual); ok {
			inner = kind.Axes
		}
	}
	for _, name := range axes {
		if !slices.Contains(inner, name) {
			fail(op, fmt.Sprintf("axis %q", name), fmt.Sprintf("the innermost region is manual over %s",
				joinNames(inner)), "take the number in the region of the axis")
		}
	}
	return t.EmitOp(graph.Const(g, int32(0)), region.DeviceIndex{Axes: axes}, nil)
}

// Size returns the number of devices on the axes. It can be called anywhere in a step. Without axes
// it returns the number of logical devices of a replica.
func Size(g *graph.Graph, axes ...string) int {
	const op = "manual: size"
	mesh := requireGraphTarget(op, g).LogicalMesh()
	if len(axes) == 0 {
		return mesh.Size()
	}
	checkAxes(op, mesh, axes)
	_, n := region.NontrivialAxes(mesh, axes)
	return n
}

type collective struct {
	op      string
	x       *graph.Node
	target  region.Target
	axes    []string
	devices int
}

// newCollective validates a call of a collective. Without axes, the collective is over all manual
// axes of the enclosing regions.
func newCollective(op string, x *graph.Node, axes []string) *collective {
	c := &collective{op: op, x: x, target: requireTarget(op, x)}
	c.axes, c.devices = resolveAxes(op, c.subject(), c.target, x.Graph(), axes)
	return c
}

// resolveAxes validates the axes of a collective and returns them with their number of devices.
func resolveAxes(op, subject string, t region.Target, g *graph.Graph, axes []string) ([]string, int) {
	mesh, manual := t.LogicalMesh(), region.ManualAxes(t)
	if len(manual) == 0 {
		fail(op, subject, "called outside of a manual region", "call it in the function of manual.Region")
	}
	if len(axes) == 0 {
		axes = mesh.SortAxes(manual)
	}
	axes = slices.Clone(axes)
	checkAxes(op, mesh, axes)
	for _, name := range axes {
		if !slices.Contains(manual, name) {
			fail(op, subject, fmt.Sprintf("axis %q is not manual here", name),
				"name one of "+joinNames(manual)+", or make the region manual over the axis")
		}
	}
	f := g.CurrentFunc()
	for f.IsClosure() {
		f = f.Parent()
	}
	if !f.IsMain() {
		fail(op, subject, fmt.Sprintf("inside function %q, which may be called outside of the region", f.Name()),
			"call it in the function of manual.Region itself, or in a closure there")
	}
	_, n := region.NontrivialAxes(mesh, axes)
	return axes, n
}

func (c *collective) subject() string { return fmt.Sprintf("of shape %v", c.x.Shape().Dimensions) }

func (c *collective) fail(reason, hint string) { fail(c.op, c.subject(), reason, hint) }

// resolveDim converts a dimension of the operand to a nonnegative index, and panics if it is out of
// range.
func (c *collective) resolveDim(name string, dim int) int {
	rank := c.x.Rank()
	if dim < -rank || dim >= rank {
		c.fail(fmt.Sprintf("%s %d of a tensor of rank %d", name, dim, rank), "use a dimension that the tensor has")
	}
	return (dim + rank) % max(rank, 1)
}

func (c *collective) checkDivisible(dim int) {
	if size := c.x.Shape().Dimensions[dim]; size%c.devices != 0 {
		c.fail(fmt.Sprintf("dimension %d of size %d is not divisible by the %d devices of %s", dim, size, c.devices,
			joinNames(c.axes)),
			fmt.Sprintf("pad the dimension to %d", (size+c.devices-1)/c.devices*c.devices))
	}
}

func (c *collective) emit(op region.Op, gradient func(v *graph.Node) *graph.Node) *graph.Node {
	return c.target.EmitOp(c.x, op, gradient)
}
