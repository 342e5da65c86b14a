package conformance

import (
	"context"
	"reflect"
	"strings"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/gomlx/core/graph"
	"github.com/stretchr/testify/require"

	v1 "github.com/tpustrategy/tpustrategy/compat/v1"
	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/input"
	"github.com/tpustrategy/tpustrategy/internal/test/conformance/inputcases"
	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/strategy/eager"
	"github.com/tpustrategy/tpustrategy/strategy/feed"
)

func inputContextText(id, pipelines int) string {
	return strings.TrimSpace(input.Context{NumInputPipelines: pipelines, InputPipelineID: id, NumReplicasInSync: 1}.String())
}

func numpyDatasetCase(c *caseRun, g golden, v *env) {
	if _, ok := g.Outputs.(bool); ok {
		_, has := reflect.TypeFor[*strategy.TPUStrategy]().MethodByName("MakeNumpyDataset")
		c.check(g.Outputs, has)
		return
	}
	// The slices of the recorded nest, put together again.
	want := g.Outputs.([]any)
	nest, ok := stack(c, want)
	if !ok {
		c.unmapped("dataset %q", g.Name)
	}
	ds, err := v.e.MakeNumpyDataset(nest)
	require.NoError(c, err)
	var got []any
	for e, err := range ds.All(v.ctx) {
		require.NoError(c, err)
		x, err := feed.Inputs(v.ctx, v.s, input.Step{Replicas: repeated(e, v.n)})
		require.NoError(c, err)
		one, err := eager.Of(v.s).SelectReplica(0, x)
		require.NoError(c, err)
		got = append(got, c.show(one))
	}
	c.check(g.Outputs, got)
}

func repeated(e input.Element, n int) []input.Element {
	list := make([]input.Element, n)
	for i := range list {
		list[i] = e
	}
	return list
}

// stack puts elements together: a nest of tensors with a leading dimension.
func stack(c *caseRun, elements []any) (any, bool) {
	switch first := elements[0].(type) {
	case map[string]any:
		m := map[string]any{}
		for k := range first {
			var column []any
			for _, e := range elements {
				column = append(column, e.(map[string]any)[k])
			}
			m[k], _ = stack(c, column)
		}
		return m, true
	case []any:
		if _, dims := flatten(first); len(first) > 0 && len(dims) == 1 && !mixed(first) {
			return tensor(c, elements, dtypeOf("", elements)), true
		}
		list := make([]any, len(first))
		for i := range first {
			var column []any
			for _, e := range elements {
				column = append(column, e.([]any)[i])
			}
			list[i], _ = stack(c, column)
		}
		return list, true
	}
	return tensor(c, elements, dtypeOf("", elements)), true
}

func mixed(list []any) bool {
	for _, x := range list {
		if _, ok := x.(map[string]any); ok {
			return true
		}
	}
	return false
}

func runStepsCase(c *caseRun, g golden, v *env) {
	name, ctx := g.Name, v.ctx
	open := func() *feed.Iterator {
		text := g.text("data")
		if text == "" {
			text = "range(12).batch(2)"
		}
		ds, ok := inputcases.Pipeline(text)
		require.True(c, ok)
		d, err := input.Distribute(ds, input.Options{Replicas: v.n})
		require.NoError(c, err)
		it, err := feed.Iterate(ctx, v.s, d)
		require.NoError(c, err)
		return it
	}
	iterations := 1
	if x, ok := g.Inputs["iterations"]; ok {
		iterations = plainValue(x).(int)
	}
	report := func(m *eager.MultiStepContext, err error) {
		if err != nil {
			c.check(g.Outputs, failed(err))
			return
		}
		ops := map[string]any{}
		for k, op := range m.ReduceOps() {
			ops[k] = nil
			if op != nil {
				ops[k] = op.String()
			}
		}
		others := map[string]any{}
		for k, x := range m.NonTensorOutputs() {
			others[k] = c.show(x)
		}
		c.check(g.Outputs, map[string]any{"last_step_outputs": scalars(c.show(m.LastStepOutputs())), "non_tensor_outputs": others, "run_op": nil, "reduce_ops": ops})
	}
	// first is the first element of a replica's batch.
	first := v.s.Function(func(_ *strategy.ReplicaContext, in []*graph.Node) []*graph.Node {
		return []*graph.Node{graph.ConvertDType(graph.Reshape(graph.Slice(in[0], graph.AxisRange(0, 1))), dtypes.Float32)}
	}, strategy.FunctionOptions{})
	var op []strategy.ReduceOp
	if strings.Contains(name, "MEAN") {
		op = append(op, strategy.Mean)
	} else if strings.Contains(name, "SUM") {
		op = append(op, strategy.Sum)
	}
	switch {
	case strings.Contains(name, "wants a dict"):
		// A map is all that the type takes.
		require.Equal(c, reflect.Map, reflect.TypeFor[*eager.MultiStepContext]().Elem().Field(1).Type.Kind())
	case strings.Contains(name, "called in a replica context"):
		_, err := v.e.CallForEachReplica(ctx, func(rc *eager.ReplicaContext, _ ...any) (any, error) {
			return v.e.RunStepsOnIterator(rc.Context(), nil, open(), 1, nil)
		})
		c.check(g.Outputs, failed(err))
	case strings.HasPrefix(name, "replica context"):
		m, err := v.e.RunStepsOnIterator(ctx, func(ctx context.Context, m *eager.MultiStepContext, inputs any) error {
			_, err := v.e.CallForEachReplica(ctx, func(rc *eager.ReplicaContext, args ...any) (any, error) {
				y, err := rc.Call(first, args[0])
				if err != nil {
					return nil, err
				}
				if err := m.SetLastStepOutput(rc.Context(), "y", y[0], op...); err != nil {
					return nil, err
				}
				if !strings.Contains(name, "non-tensor") {
					return nil, nil
				}
				return nil, m.SetNonTensorOutput(rc.Context(), "n", "text")
			}, inputs)
			return err
		}, open(), iterations, nil)
		report(m, err)
	case strings.HasPrefix(name, "cross-replica"):
		m, err := v.e.RunStepsOnIterator(ctx, func(ctx context.Context, m *eager.MultiStepContext, inputs any) error {
			y, err := first.Run(ctx, inputs)
			if err != nil {
				return err
			}
			if strings.Contains(name, "non-tensor") {
				if err := m.SetNonTensorOutput(ctx, "n", "text"); err != nil {
					return err
				}
			}
			return m.SetLastStepOutput(ctx, "y", y[0], op...)
		}, open(), iterations, nil)
		report(m, err)
	default:
		c.byName(g, v)
	}
}

// scalars takes batches of one apart.
func scalars(x any) any {
	switch x := x.(type) {
	case map[string]any:
		for k := range x {
			x[k] = scalars(x[k])
		}
	case distributed:
		for r := range x.values {
			if list, ok := x.values[r].([]any); ok && len(list) == 1 {
				x.values[r] = list[0]
			}
		}
	}
	return x
}

// defaultCase runs the default strategy's cases on one replica, which is what it
// is.
func defaultCase(c *caseRun, g golden, v *env) {
	ctx := v.ctx
	vector := []float32{1, 2}
	w := v.variable(c, float32(1), strategy.VariableOptions{})
	old := v1.New(v.s, v1.Options{}).Extended()
	got := map[string]any{
		"num_replicas": float64(v.s.NumReplicasInSync()),
		"reduce":       c.either(eager.Of(v.s).Reduce(ctx, strategy.Sum, vector)),
		"reduce_axis0": c.either(eager.Of(v.s).Reduce(ctx, strategy.Sum, vector, 0)),
		"mean_axis0":   c.either(eager.Of(v.s).Reduce(ctx, strategy.Mean, vector, 0)),
		"run":          c.either(v.e.CallForEachReplica(ctx, func(*eager.ReplicaContext, ...any) (any, error) { return 2.0, nil })),
		"call_for_each_replica": c.either(v.e.CallForEachReplica(ctx, func(_ *eager.ReplicaContext, args ...any) (any, error) {
			return args[0].(int) + args[1].(int), nil
		}, 1, 2)),
		"value_container":   v.e.ValueContainer(w) == any(w),
		"cluster_resolver":  nil,
		"should_checkpoint": old.ShouldCheckpoint(),
		"broadcast_none":    c.either(v.e.BroadcastTo(ctx, 1.0, eager.Destination{})),
	}
	_, err := v.e.CallForEachReplica(ctx, func(rc *eager.ReplicaContext, _ ...any) (any, error) {
		got["replica_id"] = float64(rc.ReplicaIDInSyncGroup())
		return v.e.CallForEachReplica(rc.Context(), func(*eager.ReplicaContext, ...any) (any, error) { return nil, nil })
	})
	got["run_in_run"] = failed(err)
	each, err := v.e.UpdateEach(ctx, w, func(u *eager.UpdateContext, _ ...any) (any, error) { return u.Read() })
	got["update_nogroup"] = c.either(each, err)
	got["update"] = c.either(v.e.Update(ctx, w, func(u *eager.UpdateContext, _ ...any) (any, error) { return u.AssignAdd(2.0) }))
	got["read_var"] = c.either(v.e.ReadVar(ctx, w))
	for k, x := range got { // a value of one replica is a value
		if d, ok := x.(distributed); ok {
			got[k] = d.values[0]
		}
	}
	c.check(g.Outputs, got)
}

func baseCase(c *caseRun, g golden, v *env) {
	if v.p > 1 {
		return // other devices than the case's
	}
	got := map[string]any{}
	for name, property := range v.properties() {
		got[name] = c.show(property())
	}
	c.check(g.Outputs, got)
}

// tpuVariableCase looks at the logical devices of the replicas.
func tpuVariableCase(c *caseRun, g golden, v *env) {
	ctx := v.scope(c)
	outputs := g.outputs()
	if _, isError := errorOf(g.Outputs); isError || strings.Contains(g.Name, "negative") || strings.Contains(g.Name, "range") {
		k := v.p
		if strings.Contains(g.Name, "negative") {
			k = -1 // there it counts from the end; here it is refused too
		}
		_, err := v.e.LogicalDevice(ctx, k)
		require.Equal(c, errkind.ValueError, errkind.Of(err))
		return
	}
	if outputs["after_assign"] == nil {
		place := func(ctx context.Context, o strategy.VariableOptions) (*strategy.Variable, any) {
			x, err := v.s.NewVariable(ctx, float32(1), o)
			require.NoError(c, err)
			c.Cleanup(func() { _ = x.Close() })
			return x, shortDevices(x.Devices())
		}
		got := map[string]any{"worker_devices": shortDevices(v.e.WorkerDevices(ctx))}
		_, got["default"] = place(ctx, strategy.VariableOptions{})
		one, err := v.e.LogicalDevice(ctx, 1)
		require.NoError(c, err)
		x, devices := place(one, strategy.VariableOptions{})
		got["logical_1"] = devices
		_, got["colocated_with_logical_1"] = place(ctx, strategy.VariableOptions{ColocateWith: x})
		zero, err := v.e.LogicalDevice(one, 0)
		require.NoError(c, err)
		_, got["nested_back_to_0"] = place(zero, strategy.VariableOptions{})
		for k := range outputs {
			if _, isError := errorOf(outputs[k]); isError {
				_, err := v.e.LogicalDevice(ctx, v.p)
				got[k] = failed(err)
			}
		}
		c.check(g.Outputs, got)
		return
	}
	x, err := v.s.NewVariable(ctx, []float32{1, 2}, strategy.VariableOptions{Name: "w"})
	require.NoError(c, err)
	c.Cleanup(func() { _ = x.Close() })
	copies := func() any {
		var all []any
		for r := range v.n {
			var replica []any
			for p := range v.p {
				part, err := x.LocalPart(ctx, r, p)
				require.NoError(c, err)
				replica = append(replica, c.show(part))
			}
			all = append(all, replica)
		}
		return all
	}
	var inner []any
	for r := range v.n {
		var names []string
		for p := range v.p {
			at, err := v.e.LogicalDevice(ctx, p)
			require.NoError(c, err)
			names = append(names, v.e.WorkerDevices(at)[r])
		}
		inner = append(inner, shortDevices(names))
	}
	got := map[string]any{"inner_devices": inner}
	require.NoError(c, x.Assign(ctx, []float32{5, 6}))
	got["after_assign"] = copies()
	got["read"] = c.either(x.Read(ctx))
	require.NoError(c, x.AssignAdd(ctx, []float32{1, 1}))
	got["after_assign_add"] = copies()
	c.check(g.Outputs, got)
}
