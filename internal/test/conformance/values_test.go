package conformance

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/gomlx/core/tensors"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/strategy/eager"
)

var noAnnotation logical.Annotation

var errReplica = errors.New("raised in a replica")

// replicaNest derives the value that replica r returned from the recorded result. For a per-replica
// result it is the replica's tensor. Otherwise all replicas return the same object.
func (c *caseRun) replicaNest(want any, r int) any {
	if kind, values, ok := distributedOf(want); ok && kind == "PerReplica" {
		if values[r] == nil {
			return nil
		}
		return tensor(c, values[r], dtypeOf("", values[r]))
	}
	switch want := want.(type) {
	case []any:
		list := make([]any, len(want))
		for i := range want {
			list[i] = c.replicaNest(want[i], r)
		}
		return list
	case map[string]any:
		m := map[string]any{}
		for k, x := range want {
			m[k] = c.replicaNest(x, r)
		}
		return m
	}
	return plainValue(want)
}

func runReturnCase(c *caseRun, g golden, v *env) {
	run := func(fn eager.ReplicaFunc, args ...any) any {
		return c.either(v.e.CallForEachReplica(v.ctx, fn, args...))
	}
	name := g.Name
	id := func(rc *eager.ReplicaContext) int { return rc.ReplicaIDInSyncGroup() }
	_, isError := errorOf(g.Outputs)
	switch {
	case isError && (g.has("args") || g.has("kwargs") || says(g.Outputs, "positional args must be") ||
		strings.Contains(name, "args") || strings.Contains(name, "positional")):
		c.skip(reasonArguments)
	case isError && strings.Contains(name, "length"):
		c.check(g.Outputs, run(func(rc *eager.ReplicaContext, _ ...any) (any, error) { return make([]any, id(rc)+1), nil }))
	case isError && strings.Contains(name, "keys"):
		c.check(g.Outputs, run(func(rc *eager.ReplicaContext, _ ...any) (any, error) {
			return map[string]any{fmt.Sprint(id(rc)): 1}, nil
		}))
	case isError && (strings.Contains(name, "raises") || strings.Contains(name, "exception")):
		_, err := v.e.CallForEachReplica(v.ctx, func(*eager.ReplicaContext, ...any) (any, error) { return nil, errReplica })
		require.ErrorIs(c, err, errReplica, "the user's own error comes through")
	case isError && wrongContext(g.Name):
		c.byName(g, v)
	case isError: // nested structures of different kinds
		c.check(g.Outputs, run(func(rc *eager.ReplicaContext, _ ...any) (any, error) {
			if id(rc) == 0 {
				return []any{1}, nil
			}
			return map[string]any{"a": 1}, nil
		}))
	case strings.HasPrefix(name, "args:"):
		runArguments(c, g, v)
	case g.Outputs == nil || g.in("a") == nil:
		if kind, values, ok := distributedOf(g.Outputs); ok && kind == "Variable" {
			// The components of a variable are shown as the variable.
			w := v.variable(c, tensor(c, values[0], dtypes.Float32), strategy.VariableOptions{})
			c.check(g.Outputs, run(func(rc *eager.ReplicaContext, _ ...any) (any, error) { return v.e.Component(w, id(rc)) }))
			return
		}
		c.check(g.Outputs, run(func(rc *eager.ReplicaContext, _ ...any) (any, error) {
			return c.replicaNest(g.Outputs, id(rc)), nil
		}))
	default:
		c.byName(g, v)
	}
}

// runArguments checks the arguments of a replica: its component of distributed values, and complete
// tensors and variables.
func runArguments(c *caseRun, g golden, v *env) {
	want := g.Outputs.([]any)
	_, sums, ok := distributedOf(want[1])
	require.True(c, ok)
	a := v.perReplica(c, g.list("a"), "")
	b := tensor(c, g.in("b"), dtypes.Float32)
	// The second result is the sum of a and the replica's component of a distributed value, which
	// is derived from the result.
	parts := make([]any, v.n)
	for r := range parts {
		x, _ := flatten(sums[r])
		y, _ := flatten(g.list("a")[r])
		parts[r] = x[0] - y[0]
	}
	m := v.perReplica(c, parts, "float32")
	w := v.variable(c, float32(1), strategy.VariableOptions{})
	c.check(g.Outputs, c.either(v.e.CallForEachReplica(v.ctx, func(rc *eager.ReplicaContext, args ...any) (any, error) {
		require.IsType(c, eager.Component{}, args[0])
		require.Same(c, b, args[1], "a tensor is passed whole")
		require.Same(c, w, args[3], "a variable stays distributed")
		sum, err := rc.Add(args[0], args[1])
		if err != nil {
			return nil, err
		}
		second, err := rc.Add(args[0], args[2])
		return []any{sum, second}, err
	}, a, b, m, w)))
}

func localResultsCase(c *caseRun, g golden, v *env) {
	results := func(x any) any {
		list, err := eager.Of(v.s).LocalResultsOf(x)
		require.NoError(c, err)
		return c.show(list)
	}
	switch {
	case strings.Contains(g.Name, "variable"):
		o := strategy.VariableOptions{}
		if strings.Contains(g.Name, "read") {
			o.Synchronization = strategy.OnRead
		}
		c.check(g.Outputs, results(v.variable(c, float32(1), o)))
	case g.in("values") != nil || g.in("value") != nil:
		c.check(g.Outputs, results(v.input(c, g)))
	case g.has("value"):
		c.check(g.Outputs, results(nil))
	case strings.HasPrefix(g.Name, "default strategy"):
		c.check(g.Outputs, results(float32(5)))
	case strings.Contains(g.Name, "Mirrored"):
		m, err := v.s.Mirror(v.ctx, tensor(c, g.Outputs.([]any)[0], dtypes.Float32), noAnnotation)
		require.NoError(c, err)
		c.check(g.Outputs, results(m))
	default:
		c.byName(g, v)
	}
}

func valueContainerCase(c *caseRun, g golden, v *env) {
	o := strategy.VariableOptions{}
	if strings.Contains(g.Name, "sync-on-read") || strings.Contains(g.Name, "ON_READ") {
		o.Synchronization = strategy.OnRead
	}
	w := v.variable(c, float32(1), o)
	component, err := v.e.Component(w, 1%v.n)
	require.NoError(c, err)
	x := tensors.FromScalar(float32(1))
	container := v.e.ValueContainer(component)
	c.check(g.Outputs, map[string]any{
		"component_gives_container": container == any(w),
		"component_gives_itself":    container == any(component),
		"container_gives_itself":    v.e.ValueContainer(w) == any(w),
		"tensor_gives_itself":       v.e.ValueContainer(x) == any(x),
	})
}

func valuesFromFunctionCase(c *caseRun, g golden, v *env) {
	outputs := g.outputs()
	if _, isError := errorOf(g.Outputs); isError && wrongContext(g.Name) {
		c.byName(g, v)
		return
	}
	if outputs["value_context"] != nil {
		c.check(g.Outputs, map[string]any{
			"value_context": eager.ValueContext{ReplicaIDInSyncGroup: 2, NumReplicasInSync: 4}.String(),
			"input_context": "Input" + inputContextText(1, 3), // the type is input.Context
		})
		return
	}
	if _, _, ok := distributedOf(g.Outputs); ok || len(outputs) == 0 && g.Outputs != nil {
		c.check(g.Outputs, c.either(eager.Of(v.s).ValuesFromFunction(v.ctx, func(x eager.ValueContext) (any, error) {
			return c.replicaNest(g.Outputs, x.ReplicaIDInSyncGroup), nil
		})))
		return
	}
	// The name of the case describes the values. Values that the name omits are derived from the
	// result.
	got := map[string]any{}
	shared := float32(7)
	for k, want := range outputs {
		fn := func(x eager.ValueContext) (any, error) { return c.replicaNest(want, x.ReplicaIDInSyncGroup), nil }
		switch k {
		case "id":
			fn = func(x eager.ValueContext) (any, error) { return 10 * x.ReplicaIDInSyncGroup, nil }
		case "n":
			fn = func(x eager.ValueContext) (any, error) { return x.NumReplicasInSync, nil }
		case "same_object_is_still_wrapped":
			fn = func(eager.ValueContext) (any, error) { return shared, nil }
		}
		got[k] = c.either(eager.Of(v.s).ValuesFromFunction(v.ctx, fn))
	}
	if len(outputs) > 0 {
		c.check(g.Outputs, got)
		return
	}
	c.byName(g, v)
}

func perReplicaCase(c *caseRun, g golden, v *env) {
	x := v.perReplica(c, []any{json.Number("1.0"), json.Number("2.0")}, "")
	switch {
	case strings.HasPrefix(g.Name, "repr"):
		require.Contains(c, x.String(), "PerReplica")
		require.Equal(c, []any{1.0, 2.0}, c.show(x).(distributed).values)
	case strings.Contains(g.Name, "convert") || strings.Contains(g.Name, "+"):
		// A PerReplica is not converted to a single value.
		w := v.variable(c, float32(1), strategy.VariableOptions{Aggregation: strategy.AggregateSum})
		require.Error(c, w.Assign(v.ctx, x))
	default:
		c.byName(g, v)
	}
}

func reduceToCase(c *caseRun, g golden, v *env) {
	outputs := g.outputs()
	w := v.variable(c, float32(9), strategy.VariableOptions{})
	values := g.list("value")
	if values == nil {
		values = upTo(v.n)
	}
	x := v.perReplica(c, values, "")
	device := v.e.WorkerDevices(v.ctx)[0]
	reduce := func(op strategy.ReduceOp, to eager.Destination) any {
		return c.either(v.e.ReduceTo(v.ctx, op, x, to))
	}
	got := map[string]any{}
	for k := range outputs {
		switch k {
		case "to_variable":
			got[k] = reduce(strategy.Sum, eager.To(w))
		case "to_itself":
			got[k] = reduce(strategy.Mean, eager.To(x))
		case "to_device":
			got[k] = reduce(strategy.Sum, eager.ToDevices(device))
		case "variable_untouched":
			got[k] = allEqual(v.components(c, w)) && v.components(c, w)[0] == 9.0
		case "list_destination": // the type has no lists, so the test uses an empty destination
			got[k] = reduce(strategy.Sum, eager.Destination{})
		case "none", "none_destination":
			got[k] = reduce(strategy.Sum, eager.Destination{})
		case "variable_aggregation_as_op":
			got[k] = reduce(strategy.ReduceOp(7), eager.To(w))
		case "bad_string":
			_, err := strategy.ParseReduceOp("MAX")
			got[k] = failed(err)
		}
	}
	switch {
	case strings.Contains(g.Name, "replica context"):
		_, err := v.e.CallForEachReplica(v.ctx, func(rc *eager.ReplicaContext, _ ...any) (any, error) {
			return v.e.ReduceTo(rc.Context(), strategy.Sum, x, eager.To(w))
		})
		c.check(g.Outputs, failed(err))
		return
	case strings.Contains(g.Name, "another strategy"):
		other, err := eager.Of(v.other(c)).Scope(v.ctx)
		require.NoError(c, err)
		if g.Section == "batch_reduce_to" {
			_, err = v.e.BatchReduceTo(other, strategy.Sum, []eager.ReducePair{{Value: x, To: eager.To(w)}})
		} else {
			_, err = v.e.ReduceTo(other, strategy.Sum, x, eager.To(w))
		}
		c.check(g.Outputs, failed(err))
		return
	case g.Section == "batch_reduce_to" || strings.Contains(g.Name, "batch"):
		// Reduce each pair of values to the values themselves and to a variable.
		var pairs []eager.ReducePair
		for i, values := range g.list("values") {
			part, ok := values.([]any)
			if !ok {
				c.unmapped("values of pairs %v", values)
			}
			y := v.perReplica(c, part, "")
			pairs = append(pairs, eager.ReducePair{Value: y, To: []eager.Destination{eager.To(y), eager.To(w)}[i%2]})
		}
		if pairs == nil {
			pairs = []eager.ReducePair{{Value: x, To: eager.To(x)}, {Value: x, To: eager.To(w)}}
		}
		op := strategy.Sum
		if strings.Contains(g.Name, "MEAN") {
			op = strategy.Mean
		}
		out, err := v.e.BatchReduceTo(v.ctx, op, pairs)
		c.check(g.Outputs, c.either(out, err))
		return
	case len(got) == 0:
		c.byName(g, v)
		return
	}
	c.check(g.Outputs, got)
}

func broadcastCase(c *caseRun, g golden, v *env) {
	w := v.variable(c, float32(1), strategy.VariableOptions{})
	value := g.float("value", 3)
	if strings.Contains(g.Name, "replica context") {
		_, err := v.e.CallForEachReplica(v.ctx, func(rc *eager.ReplicaContext, _ ...any) (any, error) {
			return v.e.BroadcastTo(rc.Context(), value, eager.To(w))
		})
		c.check(g.Outputs, failed(err))
		return
	}
	if strings.Contains(g.Name, "another strategy") {
		other, err := eager.Of(v.other(c)).Scope(v.ctx)
		require.NoError(c, err)
		_, err = v.e.BroadcastTo(other, value, eager.To(w))
		c.check(g.Outputs, failed(err))
		return
	}
	got := map[string]any{}
	send := func(x any, to eager.Destination) any { return c.either(v.e.BroadcastTo(v.ctx, x, to)) }
	for k := range g.outputs() {
		switch k {
		case "none", "list": // the type has no lists, so the test uses an empty destination
			got[k] = send(value, eager.Destination{})
		case "python":
			got[k] = send(value, eager.To(w))
		case "tensor":
			got[k] = send(tensors.FromScalar(float32(value)), eager.To(w))
		case "to_one_device":
			got[k] = send(tensors.FromScalar(float32(value)), eager.ToDevices(v.e.WorkerDevices(v.ctx)[0]))
		}
	}
	if len(got) == 0 {
		c.byName(g, v)
		return
	}
	if d, ok := got["to_one_device"].(distributed); ok {
		got["to_one_device"] = d.values[0]
	}
	c.check(g.Outputs, got)
}
