package conformance

import (
	"context"
	"encoding/json"
	"regexp"
	"strconv"
	"strings"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/core/tensors"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/strategy/eager"
)

var axisText = regexp.MustCompile(`\baxis (None|-?\d+|[\[(][-\d, ]*[\])])`)

// axesOf returns the axes in the inputs or the name.
func axesOf(c *caseRun, g golden) []int {
	if axis := g.in("axis"); g.has("axis") {
		switch axis := axis.(type) {
		case nil:
			return nil
		case json.Number:
			k, err := strconv.Atoi(axis.String())
			require.NoError(c, err)
			return []int{k}
		case []any:
			var axes []int
			for _, a := range axis {
				k, err := strconv.Atoi(a.(json.Number).String())
				require.NoError(c, err)
				axes = append(axes, k)
			}
			return axes
		}
		c.unmapped("axis %v", axis)
	}
	m := axisText.FindStringSubmatch(g.Name)
	if m == nil || m[1] == "None" || strings.Contains(g.Name, "no axis") {
		return nil
	}
	var axes []int
	for _, f := range strings.FieldsFunc(m[1], func(r rune) bool { return strings.ContainsRune("[](), ", r) }) {
		k, err := strconv.Atoi(f)
		require.NoError(c, err)
		axes = append(axes, k)
	}
	return axes
}

func reduceCase(c *caseRun, g golden, v *env) {
	outputs := g.outputs()
	// ctx and s are the context and the strategy of the call.
	ctx, s := v.ctx, v.s
	reduceOne := func(op strategy.ReduceOp, x any, axes ...int) any {
		return c.either(eager.Of(s).Reduce(ctx, op, x, axes...))
	}
	value := func() any { return v.input(c, g) }
	name := g.Name
	if parts, ok := splitOf(name); ok && !g.has("values") && !g.has("value") {
		value = func() any { return v.replicas(c, parts, g.text("dtype")) }
	}
	switch {
	case strings.Contains(g.text("op"), "."):
		if g.has("value") || g.has("values") {
			value()
		}
		// Go does not convert an enum of another type, so a caller can only pass an invalid number.
		_, err := eager.Of(s).Reduce(ctx, strategy.ReduceOp(7), v.perReplica(c, upTo(v.n), ""), axesOf(c, g)...)
		require.Error(c, err)
		return
	case g.text("op") != "":
		op, err := strategy.ParseReduceOp(g.text("op"))
		x := value()
		if err != nil {
			c.check(g.Outputs, failed(err))
			return
		}
		c.check(g.Outputs, reduceOne(op, x, axesOf(c, g)...))
	case strings.Contains(name, "replica context"):
		x := value()
		_, err := v.e.CallForEachReplica(ctx, func(rc *eager.ReplicaContext, _ ...any) (any, error) {
			return eager.Of(s).Reduce(rc.Context(), strategy.Sum, x)
		})
		c.check(g.Outputs, failed(err))
	case strings.Contains(name, "another strategy"):
		x := value()
		other, err := eager.Of(v.other(c)).Scope(ctx)
		require.NoError(c, err)
		_, err = eager.Of(s).Reduce(other, strategy.Sum, x)
		c.check(g.Outputs, failed(err))
	case strings.Contains(name, "result is a plain tensor"):
		out, err := eager.Of(s).Reduce(ctx, strategy.Sum, value())
		require.NoError(c, err)
		require.IsType(c, &strategy.Mirrored{}, out, "one value, not one for each replica")
	case strings.Contains(name, "variable"):
		o := strategy.VariableOptions{}
		if strings.Contains(name, "read") {
			o.Synchronization, o.Aggregation = strategy.OnRead, strategy.AggregateSum
		}
		var x any
		if _, _, ok := distributedOf(g.in("value")); ok {
			x = v.input(c, g)
		} else {
			x = v.variable(c, tensor(c, g.in("value"), dtypes.Float32), o)
		}
		got := map[string]any{"SUM": reduceOne(strategy.Sum, x, axesOf(c, g)...), "MEAN": reduceOne(strategy.Mean, x,
			axesOf(c, g)...)}
		c.check(g.Outputs, got)
	case outputs["dtype"] != nil || strings.HasPrefix(name, "integer"):
		op := strategy.Sum
		if strings.Contains(name, "MEAN") {
			op = strategy.Mean
		}
		out, err := eager.Of(s).Reduce(ctx, op, value(), axesOf(c, g)...)
		if err != nil {
			c.check(g.Outputs, failed(err))
			return
		}
		c.check(g.Outputs, map[string]any{"dtype": strings.ToLower(out.(*strategy.Mirrored).Shape().DType.String()),
			"value": c.show(out)})
	case reductions(outputs):
		x := value()
		got := map[string]any{}
		for k := range outputs {
			if r, ok := reductionOf(k); ok {
				axes := r.axes
				if !r.axis {
					axes = axesOf(c, g)
				}
				got[k] = reduceOne(r.op, x, axes...)
			} else if strings.Contains(k, "mean_of_") && strings.Contains(k, "means") {
				got[k] = v.meanOfMeans(c, g, reduceOne)
			}
		}
		c.check(g.Outputs, got)
	case g.in("value") != nil || g.in("values") != nil:
		op := strategy.Sum
		if strings.Contains(name, "MEAN") {
			op = strategy.Mean
		}
		c.check(g.Outputs, reduceOne(op, value(), axesOf(c, g)...))
	default:
		c.byName(g, v)
	}
}

// reductions reports whether outputs are named after reductions.
func reductions(outputs map[string]any) bool {
	for k := range outputs {
		if _, ok := reductionOf(k); ok {
			return true
		}
	}
	return false
}

// meanOfMeans returns the mean of the means of the replicas that have rows. It differs from the
// mean of all rows.
func (v *env) meanOfMeans(c *caseRun, g golden, reduce func(strategy.ReduceOp, any, ...int) any) any {
	means, with := make([]any, v.n), 0
	parts := g.list("values")
	if parts == nil {
		parts, _ = splitOf(g.Name)
	}
	if len(parts) != v.n {
		c.unmapped("the means of %v", parts)
	}
	for r, part := range parts {
		flat, _ := flatten(part)
		total := 0.0
		for _, y := range flat {
			total += y
		}
		means[r] = tensors.FromScalar(float32(0))
		if len(flat) > 0 {
			means[r] = tensors.FromScalar(float32(total / float64(len(flat))))
			with++
		}
	}
	m, err := v.s.PerReplica(v.ctx, means, logical.Annotation{})
	require.NoError(c, err)
	if with == v.n {
		return reduce(strategy.Mean, m)
	}
	sum, ok := reduce(strategy.Sum, m).(distributed)
	require.True(c, ok)
	return sum.values[0].(float64) / float64(with)
}

func gatherCase(c *caseRun, g golden, v *env) {
	ctx := v.ctx
	axis := 0
	if axes := axesOf(c, g); len(axes) == 1 {
		axis = axes[0]
	}
	switch {
	case strings.Contains(g.Name, "IndexedSlices"):
		c.unmapped("sparse values")
	case strings.Contains(g.Name, "replica context"):
		vectors := make([]any, v.n)
		for r := range vectors {
			vectors[r] = []any{json.Number("1.0")}
		}
		x := v.perReplica(c, vectors, "")
		_, err := v.e.CallForEachReplica(ctx, func(rc *eager.ReplicaContext, _ ...any) (any, error) {
			return v.s.Gather(rc.Context(), x, axis)
		})
		c.check(g.Outputs, failed(err))
	case g.in("values") != nil || g.in("value") != nil:
		out, err := eager.Of(v.s).Gather(ctx, v.input(c, g), axis)
		c.check(g.Outputs, c.either(out, err))
	default:
		c.byName(g, v)
	}
}

// replicaValue evaluates a nested structure of expressions for a replica with the given ID.
func replicaValue(c *caseRun, x any, id int) any {
	switch x := x.(type) {
	case string:
		return replicaValue(c, python(c, x, id), id)
	case map[string]any:
		if _, values, ok := distributedOf(x); ok {
			return replicaValue(c, values[id], id)
		}
		m := map[string]any{}
		for k, y := range x {
			m[k] = replicaValue(c, y, id)
		}
		return m
	case []any:
		if isNest(x) {
			list := make([]any, len(x))
			for i, y := range x {
				list[i] = replicaValue(c, y, id)
			}
			return list
		}
	}
	return tensor(c, x, dtypeOf("", x))
}

// isNest reports whether a list contains nested values instead of numbers.
func isNest(list []any) bool {
	for _, x := range list {
		switch x := x.(type) {
		case string, map[string]any:
			return true
		case []any:
			if isNest(x) {
				return true
			}
		}
	}
	return false
}

func allReduceCase(c *caseRun, g golden, v *env) {
	if g.text("y") != "" {
		gradientCase(c, g, v)
		return
	}
	outputs := g.outputs()
	run := func(op strategy.ReduceOp) any {
		return c.either(v.e.CallForEachReplica(v.ctx, func(rc *eager.ReplicaContext, _ ...any) (any, error) {
			return rc.AllReduce(op, v.part(c, g, rc.ReplicaIDInSyncGroup()))
		}))
	}
	switch {
	case strings.Contains(g.Name, "cross-replica") || strings.Contains(g.Name, "scope"):
		_, ok := eager.ReplicaContextOf(v.scope(c))
		require.False(c, ok, "there is no replica context to call it on")
	case outputs["SUM"] != nil || outputs["MEAN"] != nil:
		op, err := strategy.ParseReduceOp("sum")
		require.NoError(c, err)
		c.check(g.Outputs, map[string]any{"SUM": run(strategy.Sum), "MEAN": run(strategy.Mean), "string_op": run(op)})
	case g.in("value") != nil || g.in("values") != nil:
		op := strategy.Sum
		if strings.Contains(g.Name, "MEAN") {
			op = strategy.Mean
		}
		if text := g.text("op"); text != "" {
			var err error
			v.part(c, g, 0)
			if op, err = strategy.ParseReduceOp(text); err != nil {
				c.check(g.Outputs, failed(err))
				return
			}
		}
		c.check(g.Outputs, run(op))
	default:
		c.byName(g, v)
	}
}

// gradientCase traces a function with all-reduces and its gradient.
func gradientCase(c *caseRun, g golden, v *env) {
	f := v.s.Function(func(rc *strategy.ReplicaContext, _ []*graph.Node) []*graph.Node {
		id := graph.ConvertDType(rc.ReplicaIDInSyncGroup(), dtypes.Float32)
		names := map[string]*graph.Node{"id": id}
		calls := map[string]func(*graph.Node) *graph.Node{
			"all_sum":  func(x *graph.Node) *graph.Node { return rc.AllReduce(strategy.Sum, x) },
			"all_mean": func(x *graph.Node) *graph.Node { return rc.AllReduce(strategy.Mean, x) },
		}
		x := build(c, g.text("x"), names, calls)
		names["x"] = x
		y := build(c, g.text("y"), names, calls)
		return []*graph.Node{y, graph.Gradient(y, x)[0]}
	}, strategy.FunctionOptions{})
	out, err := f.Run(v.ctx)
	require.NoError(c, err)
	c.check(g.Outputs, map[string]any{"y": c.show(out[0]), "dy_dx": c.show(out[1])})
}

func allGatherCase(c *caseRun, g golden, v *env) {
	axis := 0
	if axes := axesOf(c, g); len(axes) == 1 {
		axis = axes[0]
	}
	if strings.Contains(g.Name, "IndexedSlices") {
		c.unmapped("sparse values")
	}
	run := func(ctx context.Context) any {
		return c.either(v.e.CallForEachReplica(ctx, func(rc *eager.ReplicaContext, _ ...any) (any, error) {
			return rc.AllGather(v.part(c, g, rc.ReplicaIDInSyncGroup()), axis)
		}))
	}
	if g.in("value") == nil && g.in("values") == nil {
		c.byName(g, v)
		return
	}
	got := run(v.ctx)
	// A gathered value is mirrored in this module, but one tensor per replica in TensorFlow.
	c.check(g.Outputs, eachOwn(got))
}

// eachOwn converts the mirrored values in a nested structure to one value per replica.
func eachOwn(x any) any {
	switch x := x.(type) {
	case distributed:
		x.kind = "PerReplica"
		return x
	case []any:
		for i := range x {
			x[i] = eachOwn(x[i])
		}
	case map[string]any:
		for k := range x {
			x[k] = eachOwn(x[k])
		}
	}
	return x
}
