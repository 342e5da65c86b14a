package strategy_test

import (
	"math/rand/v2"
	"slices"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/dtypes/bfloat16"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/core/tensors"

	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/lowering/spmd"
	"github.com/tpustrategy/tpustrategy/strategy"
)

// lanes is a value of the program: one node if each replica traces its own value, or R nodes if one
// graph has the values of all replicas.
type lanes []*graph.Node

// evaluation traces a program. With a replica context it traces the distributed program, otherwise
// the reference.
type evaluation struct {
	p    *randomProgram
	rc   *strategy.ReplicaContext
	g    *graph.Graph
	vars []lanes
}

// randomData returns a tensor of a kind from a seed.
func randomData(seed uint64, k kind) *tensors.Tensor {
	rng := rand.New(rand.NewPCG(seed, 7))
	n := k.size()
	switch k.dtype {
	case dtypes.Float64:
		return tensors.FromFlatDataAndDimensions(fill(n, rng.NormFloat64), k.dims...)
	case dtypes.BFloat16:
		return tensors.FromFlatDataAndDimensions(fill(n,
			func() bfloat16.BFloat16 { return bfloat16.FromFloat32(float32(rng.NormFloat64())) }), k.dims...)
	case dtypes.Int32:
		return tensors.FromFlatDataAndDimensions(fill(n, func() int32 { return int32(rng.IntN(14) - 5) }), k.dims...)
	case dtypes.Bool:
		return tensors.FromFlatDataAndDimensions(fill(n, func() bool { return rng.IntN(2) == 0 }), k.dims...)
	}
	return tensors.FromFlatDataAndDimensions(fill(n, func() float32 { return float32(rng.NormFloat64()) }), k.dims...)
}

func fill[T any](n int, next func() T) []T {
	s := make([]T, n)
	for i := range s {
		s[i] = next()
	}
	return s
}

func (k kind) shape() shapes.Shape { return shapes.Make(k.dtype, k.dims...) }

// run traces a block's code on values and returns all values.
func (e *evaluation) run(code []instruction, values []lanes) []lanes {
	values = slices.Clone(values)
	for _, in := range code {
		operands := make([]lanes, len(in.in))
		for i, n := range in.in {
			operands[i] = values[n]
		}
		values = append(values, e.instruction(in, operands, values)...)
	}
	return values
}

func (e *evaluation) instruction(in instruction, operands, values []lanes) []lanes {
	switch in.op {
	case "annotate":
		if e.rc == nil {
			return operands
		}
		return []lanes{{logical.Apply(operands[0][0], in.note)}}
	case "region":
		inner := func(inputs []lanes) []lanes {
			all := e.run(in.body.code, append(slices.Clone(inputs), e.vars...))
			outs := make([]lanes, len(in.body.outs))
			for i, out := range in.body.outs {
				outs[i] = all[out]
			}
			return outs
		}
		if e.rc == nil {
			return inner(operands)
		}
		return alone(logical.OnDeviceMany(in.ints[0], lane(operands, 0), func(inputs []*graph.Node) []*graph.Node {
			return lane(inner(alone(inputs)), 0)
		}))
	case "mean_replicas", "sum_replicas", "gather_replicas", "reduce_scatter", "broadcast_replica", "replica_id":
		return []lanes{e.collective(in, operands)}
	}
	width := 1
	if e.rc == nil {
		width = e.p.replicas
	}
	results := make([]lanes, len(in.kinds))
	for l := range width {
		for i, node := range e.local(in, lane(operands, l), values, l) {
			results[i] = append(results[i], node)
		}
	}
	return results
}

// lane selects one node of each value; alone creates values with one node.
func lane(values []lanes, l int) []*graph.Node {
	nodes := make([]*graph.Node, len(values))
	for i, v := range values {
		nodes[i] = v[l]
	}
	return nodes
}

func alone(nodes []*graph.Node) []lanes {
	values := make([]lanes, len(nodes))
	for i, node := range nodes {
		values[i] = lanes{node}
	}
	return values
}

func (e *evaluation) collective(in instruction, operands []lanes) lanes {
	r := e.p.replicas
	mean := func(x *graph.Node) *graph.Node {
		if x.DType().IsFloat() {
			return graph.MulScalar(x, 1/float64(r))
		}
		return x
	}
	if e.rc != nil {
		switch in.op {
		case "replica_id":
			return lanes{e.rc.ReplicaIDInSyncGroup()}
		case "mean_replicas":
			return lanes{e.rc.AllReduce(strategy.Mean, operands[0][0])}
		case "sum_replicas":
			return lanes{e.rc.AllReduce(strategy.Sum, operands[0][0])}
		case "gather_replicas":
			return lanes{e.rc.AllGather(operands[0][0], in.ints[0])}
		case "reduce_scatter":
			return lanes{mean(spmd.ReduceScatter(operands[0][0], in.ints[0]))}
		}
		return lanes{e.rc.Broadcast(operands[0][0])}
	}
	all := make(lanes, r)
	for l := range r {
		switch in.op {
		case "replica_id":
			all[l] = graph.Const(e.g, int32(l))
		case "gather_replicas":
			all[l] = graph.Concatenate(operands[0], in.ints[0])
		case "broadcast_replica":
			all[l] = copyValue(operands[0][0])
		default:
			sum := operands[0][0]
			for _, x := range operands[0][1:] {
				sum = graph.Add(sum, x)
			}
			all[l] = mean(sum)
			if in.op == "reduce_scatter" {
				n := in.kinds[0].dims[in.ints[0]]
				all[l] = graph.SliceAxis(all[l], in.ints[0], graph.AxisRange(l*n, (l+1)*n))
			}
		}
	}
	return all
}

// local traces an op of one replica.
func (e *evaluation) local(in instruction, x []*graph.Node, values []lanes, l int) []*graph.Node {
	one := func(y *graph.Node) []*graph.Node { return []*graph.Node{y} }
	switch in.op {
	case "if":
		return graph.If(graph.StopGradient(x[0]), e.branch(in, values, l),
			graph.NewClosure(e.g, func(g *graph.Graph) []*graph.Node {
				return one(graph.ConstTensor(g, tensors.FromShape(in.kinds[0].shape())))
			}))
	case "while":
		return one(e.while(in, x[0], values, l))
	case "zeros":
		var all []*graph.Node
		for _, k := range in.kinds {
			all = append(all, graph.ConstTensor(e.g, tensors.FromShape(k.shape())))
		}
		return all
	case "const":
		return one(graph.ConstTensor(e.g, randomData(uint64(in.ints[0]), in.kinds[0])))
	}
	return one(simple(in, x))
}

// inside evaluates a closure of one replica, whose values have one node each.
func (e *evaluation) inside(code []instruction, values []lanes, l int, more ...*graph.Node) []lanes {
	single := &evaluation{p: e.p, rc: e.rc, g: e.g}
	if single.rc == nil {
		q := *e.p
		q.replicas, single.p = 1, &q
	}
	return single.run(code, append(alone(lane(values, l)), alone(more)...))
}

func (e *evaluation) branch(in instruction, values []lanes, l int) *graph.Function {
	return graph.NewClosure(e.g, func(*graph.Graph) []*graph.Node {
		return e.inside(in.body.code, values, l)[in.body.outs[0]]
	})
}

func (e *evaluation) while(in instruction, x *graph.Node, values []lanes, l int) *graph.Node {
	state := func(g *graph.Graph) (count, value *graph.Node) {
		return graph.Parameter(g, "count", shapes.Make(dtypes.Int32)), graph.Parameter(g, "value", x.Shape())
	}
	cond := graph.NewClosure(e.g, func(g *graph.Graph) []*graph.Node {
		count, _ := state(g)
		return []*graph.Node{graph.LessThan(count, graph.Const(g, int32(in.ints[0])))}
	})
	body := graph.NewClosure(e.g, func(g *graph.Graph) []*graph.Node {
		count, value := state(g)
		return []*graph.Node{graph.Add(count, graph.ConstTensor(g, tensors.FromValue(int32(1)))), e.inside(in.body.code,
			values, l, value)[in.body.outs[0]][0]}
	})
	return graph.While(cond, body, graph.Const(e.g, int32(0)), graph.StopGradient(x))[1]
}

// copyValue returns x with another name and a separate gradient.
func copyValue(x *graph.Node) *graph.Node {
	return graph.IdentityWithCustomGradient(x, func(_, v *graph.Node) *graph.Node { return v })
}

func simple(in instruction, x []*graph.Node) *graph.Node {
	a := x[0]
	switch in.op {
	case "not":
		return graph.LogicalNot(a)
	case "and":
		return graph.LogicalAnd(a, x[1])
	case "tanh":
		if !a.DType().IsFloat() {
			return graph.Neg(a)
		}
		return graph.Tanh(a)
	case "neg":
		return graph.Neg(a)
	case "sigmoid":
		if !a.DType().IsFloat() {
			return graph.AddScalar(a, 3)
		}
		return graph.Sigmoid(a)
	case "square":
		return graph.Square(bounded(a))
	case "add":
		return graph.Add(a, x[1])
	case "sub":
		return graph.Sub(a, x[1])
	case "mul":
		return graph.Mul(a, bounded(x[1]))
	case "contract":
		n := a.Shape().Dimensions[in.ints[0]]
		return graph.MulScalar(graph.DotGeneral(a, in.ints[:1], nil, bounded(x[1]), in.ints[1:], nil), 1/float64(n))
	case "gram":
		batch, contract := in.ints[:1], in.ints[1:]
		n := a.Shape().Dimensions[contract[0]]
		return graph.MulScalar(graph.DotGeneral(a, contract, batch, bounded(a), contract, batch), 1/float64(n))
	case "sum":
		var y *graph.Node
		if in.ints[0] < 0 {
			y = graph.ReduceAllSum(a)
		} else {
			y = graph.ReduceSum(a, in.ints[0])
		}
		if a.DType().IsFloat() && a.Shape().Size() > 0 {
			y = graph.MulScalar(y, float64(y.Shape().Size())/float64(a.Shape().Size()))
		}
		return y
	case "max":
		if in.ints[0] < 0 {
			return graph.ReduceAllMax(graph.StopGradient(a))
		}
		return graph.ReduceMax(graph.StopGradient(a), in.ints[0])
	case "softmax":
		return graph.Softmax(a, in.ints[0])
	case "transpose":
		if a.IsScalar() {
			return a
		}
		return graph.TransposeAllAxes(a, in.ints...)
	case "reshape":
		return graph.Reshape(a, in.ints...)
	case "slice":
		return graph.SliceAxis(a, in.ints[0], graph.AxisRange(in.ints[1], in.ints[2]).Stride(in.ints[3]))
	case "concat":
		return graph.Concatenate(x, in.ints[0])
	case "gather":
		n := a.Shape().Dimensions[0]
		rows := graph.ModScalar(graph.AddScalar(graph.ModScalar(x[1], n), n), n)
		return graph.Gather(a, graph.ExpandAxes(rows, -1))
	case "where":
		return graph.Where(a, x[1], x[2])
	case "positive":
		return graph.GreaterThan(a, graph.ZerosLike(a))
	case "convert":
		to := in.kinds[0].dtype
		if a.DType().IsFloat() == to.IsFloat() {
			return graph.ConvertDType(a, to)
		}
		if a.DType() == dtypes.Int32 {
			a = graph.ModScalar(a, 16)
		}
		return graph.ConvertDType(graph.StopGradient(a), to)
	case "broadcast":
		return graph.BroadcastToDims(graph.ExpandAxes(a, 0), in.kinds[0].dims...)
	case "reverse":
		return graph.Reverse(a, in.ints[0])
	case "pad":
		axes := make([]compute.PadAxis, a.Rank())
		axes[in.ints[0]] = compute.PadAxis{Start: in.ints[1], End: in.ints[2]}
		return graph.Pad(a, graph.ScalarZero(a.Graph(), a.DType()), axes...)
	case "sort":
		return graph.Sort(graph.StopGradient(a), in.ints[0], true)
	}
	panic("unknown op " + in.op)
}

// bounded prevents products from growing.
func bounded(x *graph.Node) *graph.Node {
	if x.DType().IsFloat() {
		return graph.Tanh(x)
	}
	return x
}
