package train

import (
	"slices"
	"strings"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/graph"

	"github.com/tpustrategy/tpustrategy/strategy"
)

// Report adds the values of a replica's batch to the metric [Reported] of that name. It is called
// in the loss function. A step without this metric ignores the values, so that one loss function
// serves training and evaluation. values and weights have the contract of [Metric].Values. Values
// that are reported repeatedly in a step, such as in each layer of a loop, add up. No gradient
// flows through the values. Report panics with an error for values of an invalid shape or dtype.
//
// GoMLX's metric functions return the mean over the batch as a scalar, which Report accepts:
//
//	train.Report(rc, "accuracy", metric.SparseCategoricalAccuracyGraph(nil, labels, logits), nil)
//
// GoMLX's metric objects (metric.Interface) are not supported. Their state is a variable that all
// replicas share, its name differs between processes, and it counts padding rows.
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
	r.addValues(i, values, weights)
}

type recorderKey struct{}

// recorder adds operations to the step's graph that accumulate the step's metrics.
type recorder struct {
	*accumulator
	*trainer
	in       []*graph.Node
	reported []bool   // for each metric
	left     []string // reported names without a metric
}

// prepare makes the trace accept calls of [Report].
func (a *accumulator) prepare(p *stepBuilder) {
	p.rc.Read(a.state) // so that loops and blocks can write it
	p.recorder = &recorder{accumulator: a, trainer: p.trainer, in: p.in, reported: make([]bool, len(a.metrics))}
	p.rc.Graph().AttachState(recorderKey{}, p.recorder)
}

// observeRows accumulates the metrics that are computed from the arguments.
func (r *recorder) observeRows(in []*graph.Node) {
	for i, m := range r.metrics {
		if m.Values != nil {
			values, weights := m.Values(r.rc, in)
			r.addValues(i, values, weights)
		}
	}
}

// observeLoss accumulates the metrics of the loss. The loss is a mean over the given weight, or
// over the replica's rows if weight is nil. observeLoss panics if the loss function did not report
// a metric that it should report.
func (r *recorder) observeLoss(loss, weight *graph.Node) {
	for i, m := range r.metrics {
		switch {
		case m.loss:
			r.addValues(i, loss, weight)
		case m.Values != nil:
		case !r.reported[i]:
			reports := "it reports nothing"
			if len(r.left) > 0 {
				slices.Sort(r.left)
				reports = "it reports " + strings.Join(slices.Compact(r.left), ", ")
			}
			panicInvalid("call train.Report with this name in the loss function, or give the metric Values",
				"metric %q has no Values and the loss function does not report it: %s", m.Name, reports)
		}
	}
}

// addValues adds values with the given weights to metric i.
func (r *recorder) addValues(i int, values, weights *graph.Node) {
	name := r.metrics[i].Name
	switch {
	case values == nil:
		panicInvalid("return a node", "metric %q has no values: the node is nil", name)
	case values.DType().IsComplex():
		panicInvalid("give floats, integers or bools", "the values of metric %q are %s", name, values.Shape())
	case weights != nil && (weights.DType().IsComplex() || weights.Rank() > values.Rank() ||
		!slices.Equal(weights.Shape().Dimensions, values.Shape().Dimensions[:weights.Rank()])):
		panicInvalid("give weights of the values' leading dimensions",
			"the weights of metric %q are %s, its values %s", name, weights.Shape(), values.Shape())
	}
	g := r.rc.Graph()
	var sum, weight *graph.Node
	values = toSummable(graph.StopGradient(values))
	switch {
	case values.IsScalar() && weights == nil:
		weight = r.rowWeight()
		sum = graph.Mul(graph.ConvertDType(values, dtypes.Float64), weight)
		// Without rows there is no mean.
		sum = graph.Where(graph.GreaterThan(weight, constant(g, dtypes.Float64, 0)), sum,
			constant(g, dtypes.Float64, 0))
	default:
		if weights == nil {
			weights = graph.OnesLike(values)
		}
		weights = graph.ConvertDType(toSummable(graph.StopGradient(weights)), values.DType())
		for weights.Rank() < values.Rank() {
			weights = graph.ExpandAxes(weights, -1)
		}
		weights = graph.BroadcastToDims(weights, values.Shape().Dimensions...)
		// Values of weight 0 are ignored, even if they are not finite.
		none := graph.Equal(weights, graph.ZerosLike(weights))
		sum = sumAll(graph.Where(none, graph.ZerosLike(values), graph.Mul(values, weights)))
		weight = sumAll(weights)
	}
	r.rc.AssignAdd(r.state, r.metricRow(i, sum, weight))
}

// setGauges sets the gauges to the given values of this step. The first gauge has index first in
// the metrics' state.
func (r *recorder) setGauges(first int, values []*graph.Node) {
	now := r.rc.Read(r.state)
	rows := []*graph.Node{}
	if first > 0 {
		rows = append(rows, graph.Slice(now, graph.AxisRange(0, first)))
	}
	one := constant(r.rc.Graph(), dtypes.Float64, 1)
	for _, x := range values {
		rows = append(rows, graph.Reshape(graph.Stack([]*graph.Node{graph.ConvertDType(x, dtypes.Float64), one}, 0),
			1, 2))
	}
	r.rc.Assign(r.state, graph.Concatenate(rows, 0))
}

// metricRow returns a tensor that adds sum and weight to metric i when it is added to the metrics'
// state. All its other rows are zero.
func (r *recorder) metricRow(i int, sum, weight *graph.Node) *graph.Node {
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

// rowWeight returns the number of rows of the replica's batch without padding, as a float64 scalar.
func (r *recorder) rowWeight() *graph.Node {
	if rows := r.rowCount(); rows != nil {
		return graph.ConvertDType(rows, dtypes.Float64)
	}
	rows := 1
	if i := slices.IndexFunc(r.in, func(x *graph.Node) bool { return !x.IsScalar() }); i >= 0 {
		rows = r.in[i].Shape().Dimensions[0]
	}
	return constant(r.rc.Graph(), dtypes.Float64, float64(rows))
}

// sumAll returns the sum of all elements as a float64 scalar.
func sumAll(x *graph.Node) *graph.Node {
	if !x.IsScalar() {
		x = graph.ReduceAllSum(x)
	}
	return graph.ConvertDType(x, dtypes.Float64)
}

// toSummable converts x to the float dtype in which its elements are summed: float64 for 64-bit integers
// and float64, and otherwise float32.
func toSummable(x *graph.Node) *graph.Node {
	switch x.DType() {
	case dtypes.Float64, dtypes.Float32:
		return x
	case dtypes.Int64, dtypes.Uint64:
		return graph.ConvertDType(x, dtypes.Float64)
	}
	return graph.ConvertDType(x, dtypes.Float32)
}

// constant returns a new node for a scalar constant. [graph.Scalar] would instead share one node
// with all branches of the graph.
func constant(g *graph.Graph, dtype dtypes.DType, x float64) *graph.Node {
	return graph.Const(g, shapes.CastAsDType(x, dtype))
}
