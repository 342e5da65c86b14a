package train

import (
	"slices"
	"strings"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/graph"

	"github.com/tpustrategy/tpustrategy/strategy"
)

// Report hands values of a replica's batch over to the metric of a name, in a loss function: a step
// whose metrics have a [Reported] of this name adds them up. A step that has none leaves them out,
// so that one loss function serves the training and the evaluation. Values and weights are as
// [Metric].Values returns them. Values that are reported more than once in a step, such as in each
// layer of a loop, add up. No gradient flows through them. Report builds graph and panics with its
// error.
//
// GoMLX's metric functions return a mean over the batch, a scalar as Report takes it:
//
//	train.Report(rc, "accuracy", metric.SparseCategoricalAccuracyGraph(nil, labels, logits), nil)
//
// Its metric objects (metric.Interface) cannot be given: their state is a variable that all
// replicas share, under a name that is another in each process, and counts the rows that pad a
// batch.
func Report(rc *strategy.ReplicaContext, name string, values, weights *graph.Node) {
	r, _ := rc.Graph().State(recorderKey{}).(*recorder)
	if r == nil {
		return
	}
	i := slices.IndexFunc(r.metrics, func(m Metric) bool { return m.Name == name && m.Values == nil && !m.loss })
	if i < 0 {
		r.left = append(r.left, name)
		return
	}
	r.reported[i] = true
	r.add(i, values, weights)
}

type recorderKey struct{}

// recorder adds up the metrics of a step in one trace.
type recorder struct {
	*accumulator
	*trainer
	in       []*graph.Node
	reported []bool   // of the metrics
	left     []string // what was reported under other names
}

// begin is the stage that readies the metrics for what the loss function reports.
func (a *accumulator) begin(p *pass) {
	p.rc.Read(a.state) // loops and blocks can write it from now on
	p.recorder = &recorder{accumulator: a, trainer: p.trainer, in: p.in, reported: make([]bool, len(a.metrics))}
	p.rc.Graph().AttachState(recorderKey{}, p.recorder)
}

// observeRows adds what metrics make of the arguments.
func (r *recorder) observeRows(in []*graph.Node) {
	for i, m := range r.metrics {
		if m.Values != nil {
			values, weights := m.Values(r.rc, in)
			r.add(i, values, weights)
		}
	}
}

// observe adds the loss of the step, once all variables are updated. The loss is a mean over the
// weight, or over the replica's rows if there is no weight.
func (r *recorder) observe(loss, weight *graph.Node) {
	for i, m := range r.metrics {
		switch {
		case m.loss:
			r.add(i, loss, weight)
		case m.Values != nil:
		case !r.reported[i]:
			reports := "it reports nothing"
			if len(r.left) > 0 {
				slices.Sort(r.left)
				reports = "it reports " + strings.Join(slices.Compact(r.left), ", ")
			}
			wrong("call train.Report with this name in the loss function, or give the metric Values",
				"metric %q has no Values and the loss function does not report it: %s", m.Name, reports)
		}
	}
}

// add adds values to metric i.
func (r *recorder) add(i int, values, weights *graph.Node) {
	name := r.metrics[i].Name
	switch {
	case values == nil:
		wrong("return a node", "metric %q has no values: the node is nil", name)
	case values.DType().IsComplex():
		wrong("give floats, integers or bools", "the values of metric %q are %s", name, values.Shape())
	case weights != nil && (weights.DType().IsComplex() || weights.Rank() > values.Rank() ||
		!slices.Equal(weights.Shape().Dimensions, values.Shape().Dimensions[:weights.Rank()])):
		wrong("give weights of the values' leading dimensions", "the weights of metric %q are %s, its values %s", name, weights.Shape(), values.Shape())
	}
	g := r.rc.Graph()
	var sum, weight *graph.Node
	values = wide(graph.StopGradient(values))
	switch {
	case values.IsScalar() && weights == nil:
		weight = r.weight()
		sum = graph.Mul(graph.ConvertDType(values, dtypes.Float64), weight)
		// Without rows there is no mean.
		sum = graph.Where(graph.GreaterThan(weight, constant(g, dtypes.Float64, 0)), sum, constant(g, dtypes.Float64, 0))
	default:
		if weights == nil {
			weights = graph.OnesLike(values)
		}
		weights = graph.ConvertDType(wide(graph.StopGradient(weights)), values.DType())
		for weights.Rank() < values.Rank() {
			weights = graph.ExpandAxes(weights, -1)
		}
		weights = graph.BroadcastToDims(weights, values.Shape().Dimensions...)
		// What weighs nothing may be anything.
		none := graph.Equal(weights, graph.ZerosLike(weights))
		sum = total(graph.Where(none, graph.ZerosLike(values), graph.Mul(values, weights)))
		weight = total(weights)
	}
	r.rc.AssignAdd(r.state, r.row(i, sum, weight))
}

// set makes values of this step those of the metrics from number first on.
func (r *recorder) set(first int, values []*graph.Node) {
	now := r.rc.Read(r.state)
	rows := []*graph.Node{}
	if first > 0 {
		rows = append(rows, graph.Slice(now, graph.AxisRange(0, first)))
	}
	one := constant(r.rc.Graph(), dtypes.Float64, 1)
	for _, x := range values {
		rows = append(rows, graph.Reshape(graph.Stack([]*graph.Node{graph.ConvertDType(x, dtypes.Float64), one}, 0), 1, 2))
	}
	r.rc.Assign(r.state, graph.Concatenate(rows, 0))
}

// row is the state with a sum and a weight in one row, and zeros elsewhere.
func (r *recorder) row(i int, sum, weight *graph.Node) *graph.Node {
	g, n := r.rc.Graph(), r.len()
	var rows []*graph.Node
	zeros := func(n int) {
		if n > 0 {
			rows = append(rows, graph.BroadcastToDims(constant(g, dtypes.Float64, 0), n, 2))
		}
	}
	zeros(i)
	rows = append(rows, graph.Reshape(graph.Stack([]*graph.Node{sum, weight}, 0), 1, 2))
	zeros(n - i - 1)
	return graph.Concatenate(rows, 0)
}

// weight is the number of real rows of the replica's batch, a float64.
func (r *recorder) weight() *graph.Node {
	if rows := r.rows(); rows != nil {
		return graph.ConvertDType(rows, dtypes.Float64)
	}
	rows := 1
	if i := slices.IndexFunc(r.in, func(x *graph.Node) bool { return !x.IsScalar() }); i >= 0 {
		rows = r.in[i].Shape().Dimensions[0]
	}
	return constant(r.rc.Graph(), dtypes.Float64, float64(rows))
}

// total is the sum of all elements, a float64.
func total(x *graph.Node) *graph.Node {
	if !x.IsScalar() {
		x = graph.ReduceAllSum(x)
	}
	return graph.ConvertDType(x, dtypes.Float64)
}

// wide is a tensor in the dtype that its elements are added up in.
func wide(x *graph.Node) *graph.Node {
	switch x.DType() {
	case dtypes.Float64, dtypes.Float32:
		return x
	case dtypes.Int64, dtypes.Uint64:
		return graph.ConvertDType(x, dtypes.Float64)
	}
	return graph.ConvertDType(x, dtypes.Float32)
}

// constant is a scalar. See number.
func constant(g *graph.Graph, dtype dtypes.DType, x float64) *graph.Node {
	return graph.Const(g, shapes.CastAsDType(x, dtype))
}
