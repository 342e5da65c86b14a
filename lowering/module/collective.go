package module

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/go-xla/stablehlo"
	xlashapes "github.com/gomlx/go-xla/types/shapes"
	"github.com/gomlx/gomlx/core/graph"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/lowering"
)

// Reduction is how a collective combines the replicas' values.
type Reduction int

const (
	// Sum adds the replicas' values.
	Sum Reduction = iota
	// Max and Min take the extreme, element by element.
	Max
	Min
	// Product multiplies them.
	Product
)

// String returns the StableHLO op of the reduction.
func (r Reduction) String() string {
	switch r {
	case Sum:
		return "add"
	case Max:
		return "maximum"
	case Min:
		return "minimum"
	case Product:
		return "multiply"
	}
	return fmt.Sprintf("Reduction(%d)", int(r))
}

// CollectiveError says why a collective cannot be traced.
type CollectiveError struct {
	// Op is "all_reduce", "all_gather", "reduce_scatter" or "replica_id".
	Op string
	// Shape is the operand's.
	Shape []int
	// Reason says what is wrong, Hint what to write instead.
	Reason, Hint string
}

func (e *CollectiveError) Error() string {
	return fmt.Sprintf("module: %s of shape %v: %s; %s", e.Op, e.Shape, e.Reason, e.Hint)
}

// Kind is InvalidArgumentError.
func (*CollectiveError) Kind() errkind.Kind { return errkind.InvalidArgumentError }

// AllReduce returns the reduction of x over the replicas, the same on each. The
// gradient of a Sum is the Sum of the replicas' gradients; other reductions have
// none. One all-reduce is emitted for each call. Like graph functions it panics
// with its error.
func AllReduce(x *graph.Node, reduction Reduction) *graph.Node {
	t := traceOf("all_reduce", x)
	t.collective(false, func(m mark, w *writer) string { return w.allReduce(m, reduction) }, nil)
	return graph.IdentityWithCustomGradient(x, func(_, v *graph.Node) *graph.Node {
		if reduction != Sum {
			panic(&CollectiveError{Op: "all_reduce", Shape: x.Shape().Dimensions,
				Reason: "only the sum has a gradient, not " + reduction.String(), Hint: "stop the gradient before it"})
		}
		return AllReduce(v, Sum)
	})
}

// AllGather returns the replicas' x one after another along axis, in replica
// order: the dimension grows R times. The gradient is [ReduceScatter].
func AllGather(x *graph.Node, axis int) *graph.Node {
	t := traceOf("all_gather", x)
	axis = checkAxis("all_gather", x, axis)
	t.collective(false, func(m mark, w *writer) string { return w.allGather(m, axis) }, func(dims []int) {
		dims[axis] *= t.opts.Replicas
	})
	return graph.IdentityWithCustomGradient(x, func(_, v *graph.Node) *graph.Node { return ReduceScatter(v, axis) })
}

// ReduceScatter sums x over the replicas and gives each replica its part along
// axis, in replica order: the dimension shrinks R times and must be divisible.
// The gradient is [AllGather].
func ReduceScatter(x *graph.Node, axis int) *graph.Node {
	t := traceOf("reduce_scatter", x)
	axis = checkAxis("reduce_scatter", x, axis)
	if size := x.Shape().Dimensions[axis]; size%t.opts.Replicas != 0 {
		panic(&CollectiveError{Op: "reduce_scatter", Shape: x.Shape().Dimensions,
			Reason: fmt.Sprintf("dimension %d of size %d is not divisible by %d replicas", axis, size, t.opts.Replicas),
			Hint:   "pad the dimension or scatter another one"})
	}
	t.collective(true, func(m mark, w *writer) string { return w.reduceScatter(m, axis) }, func(dims []int) {
		dims[axis] /= t.opts.Replicas
	})
	return graph.IdentityWithCustomGradient(x, func(_, v *graph.Node) *graph.Node { return AllGather(v, axis) })
}

// ReplicaIDName is the parameter of the step function that holds the replica id.
const ReplicaIDName = "replica_id"

// ReplicaID returns the number of the replica that runs, an int32 scalar from 0
// to R-1.
func ReplicaID(g *graph.Graph) *graph.Node {
	if g.GetParameterByName(ReplicaIDName) == nil {
		return graph.Parameter(g, ReplicaIDName, shapes.Make(dtypes.Int32))
	}
	return g.GetParameterByName(ReplicaIDName)
}

func traceOf(op string, x *graph.Node) *Trace {
	if x == nil {
		panic(&CollectiveError{Op: op, Reason: "a nil node", Hint: "pass a node of the step"})
	}
	t, ok := x.Graph().Backend().(*Trace)
	switch {
	case !ok:
		panic(&CollectiveError{Op: op, Shape: x.Shape().Dimensions,
			Reason: fmt.Sprintf("a graph of backend %q has no replicas", x.Graph().Backend().Name()),
			Hint:   "trace the step through a strategy"})
	case t.open:
		panic(&CollectiveError{Op: op, Shape: x.Shape().Dimensions,
			Reason: "inside a region that runs on one logical device, which the others would wait for",
			Hint:   "call it before or after the On region"})
	}
	return t
}

func checkAxis(op string, x *graph.Node, axis int) int {
	rank := x.Rank()
	if axis < -rank || axis >= rank {
		panic(&CollectiveError{Op: op, Shape: x.Shape().Dimensions,
			Reason: fmt.Sprintf("axis %d of a tensor of rank %d", axis, rank), Hint: "use an axis that the tensor has"})
	}
	return (axis + rank) % max(rank, 1)
}

// collective says that the next identity op is the collective that emit writes,
// of which resize changes the dimensions. differs says that replicas receive
// different values.
func (t *Trace) collective(differs bool, emit func(m mark, w *writer) string, resize func(dims []int)) {
	t.pending = func(f *lowering.Function, x *stablehlo.Value) (*stablehlo.Value, error) {
		shape := x.Shape().Clone()
		if resize != nil {
			resize(shape.Dimensions)
		}
		t.across[strconv.Itoa(len(t.markers))] = differs
		t.collectives[strconv.Itoa(len(t.markers))] = true
		return t.mark(f.StableHLO(), x, shape, func(w *writer, m mark) string { return emit(m, w) })
	}
}

// The collectives name global partition ids: one group of replicas for each
// logical coordinate. The groups are an attribute alias, written once a module.

func (w *writer) attributes(first string) string {
	w.channels++
	return fmt.Sprintf("{%schannel_handle = #stablehlo.channel_handle<handle = %d, type = 1>, replica_groups = #replica_groups, use_global_device_ids}",
		first, w.channels)
}

func (w *writer) combiner(m mark, r Reduction) string { return w.combine(m, r.String()) }

func (w *writer) combine(m mark, op string) string {
	scalar := scalarType(m.inType)
	id := strings.TrimPrefix(m.out, "%")
	return fmt.Sprintf("({\n%[1]s  ^combine(%%lhs_%[4]s: %[2]s, %%rhs_%[4]s: %[2]s):\n%[1]s    %%both_%[4]s = stablehlo.%[3]s %%lhs_%[4]s, %%rhs_%[4]s : %[2]s\n%[1]s    stablehlo.return %%both_%[4]s : %[2]s\n%[1]s})",
		m.indent, scalar, op, id)
}

func (w *writer) allReduce(m mark, r Reduction) string {
	if slices.Contains(dimsOf(m.outType), 0) {
		return empty(m)
	}
	if w.replicas == 1 {
		return w.unchanged(m)
	}
	return fmt.Sprintf("%s = \"stablehlo.all_reduce\"(%s) %s %s : (%s) -> %s",
		m.out, m.in, w.combiner(m, r), w.attributes(""), m.inType, m.outType)
}

func (w *writer) allGather(m mark, axis int) string {
	if slices.Contains(dimsOf(m.outType), 0) {
		return empty(m)
	}
	if w.replicas == 1 {
		return w.unchanged(m)
	}
	return fmt.Sprintf("%s = \"stablehlo.all_gather\"(%s) %s : (%s) -> %s",
		m.out, m.in, w.attributes(fmt.Sprintf("all_gather_dim = %d : i64, ", axis)), m.inType, m.outType)
}

func (w *writer) reduceScatter(m mark, axis int) string {
	if slices.Contains(dimsOf(m.outType), 0) {
		return empty(m)
	}
	if w.replicas == 1 {
		return w.unchanged(m)
	}
	return fmt.Sprintf("%s = \"stablehlo.reduce_scatter\"(%s) %s %s : (%s) -> %s",
		m.out, m.in, w.combiner(m, Sum), w.attributes(fmt.Sprintf("scatter_dimension = %d : i64, ", axis)), m.inType, m.outType)
}

// unchanged writes an op that is its operand: on one device there is nothing to
// constrain or to combine.
func (w *writer) unchanged(m mark) string {
	return fmt.Sprintf("%s = stablehlo.reshape %s : (%s) -> %s", m.out, m.in, m.inType, m.outType)
}

// empty writes a tensor without elements: collectives refuse them.
func empty(m mark) string {
	return fmt.Sprintf("%s = stablehlo.constant dense<> : %s", m.out, m.outType)
}

// scalarType is tensor<f32> for tensor<8x4xf32>.
func scalarType(tensor string) string {
	inner := strings.TrimSuffix(strings.TrimPrefix(tensor, "tensor<"), ">")
	for {
		dim, rest, ok := strings.Cut(inner, "x")
		if !ok || strings.Trim(dim, "0123456789") != "" || dim == "" {
			return "tensor<" + inner + ">"
		}
		inner = rest
	}
}

// xlaType is the text of a shape.
func xlaType(s xlashapes.Shape) string { return s.ToStableHLO() }
