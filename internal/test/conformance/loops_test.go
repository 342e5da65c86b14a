package conformance

import (
	"context"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strconv"
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
	return strings.TrimSpace(input.Context{NumInputPipelines: pipelines, InputPipelineID: id,
		NumReplicasInSync: 1}.String())
}

func numpyDatasetCase(c *caseRun, g golden, v *env) {
	if _, ok := g.Outputs.(bool); ok {
		_, has := reflect.TypeFor[*strategy.TPUStrategy]().MethodByName("MakeNumpyDataset")
		c.check(g.Outputs, has)
		return
	}
	v.numpyDataset(c, g)
}

var batchText = regexp.MustCompile(`\bbatch\((\d+)(, *drop_remainder(?:=True)?)?\)`)

// numpyDataset checks a dataset of the case's arrays. If the case has no arrays, they are
// reconstructed from the recorded slices. The dataset is batched as described in the title.
func (v *env) numpyDataset(c *caseRun, g golden) {
	want, isList := g.Outputs.([]any)
	outputs := g.outputs()
	for _, k := range []string{"elements", "slices", "list", "values"} {
		if list, ok := outputs[k].([]any); ok && !isList {
			want = list
		}
	}
	var nest any
	for _, k := range []string{"array", "arrays", "value", "values", "nest", "data", "numpy"} {
		if g.has(k) && nest == nil {
			nest = arrays(c, g.in(k), g.text("dtype"))
		}
	}
	ok := nest != nil
	if !ok && len(want) > 0 {
		nest, ok = stack(c, want)
	}
	if !ok {
		c.unmapped("dataset %q", g.Name)
	}
	ds, err := v.e.MakeNumpyDataset(nest)
	if err != nil {
		c.check(g.Outputs, failed(err))
		return
	}
	spec := ds.Info().Spec
	if m := batchText.FindStringSubmatch(g.Name); m != nil {
		size, err := strconv.Atoi(m[1])
		require.NoError(c, err)
		ds = ds.Batch(size, m[2] != "")
	}
	elements := []any{}
	for e, err := range ds.All(v.ctx) {
		require.NoError(c, err)
		if hasStrings(e) {
			elements = append(elements, shownElement(e))
			continue
		}
		x, err := feed.CopyToDevices(v.ctx, v.s, input.Step{Replicas: repeated(e, v.n)})
		require.NoError(c, err)
		one, err := eager.Of(v.s).SelectReplica(0, x)
		require.NoError(c, err)
		elements = append(elements, c.show(one))
	}
	if isList {
		c.check(g.Outputs, elements)
		return
	}
	got := map[string]any{}
	for _, k := range []string{"elements", "slices", "list", "values"} {
		got[k] = elements
	}
	// The recorded spec describes the arrays or the batches. Its rank shows which.
	got["spec"], got["element_spec"] = inputcases.SpecText(spec, 1), inputcases.SpecText(spec, 1)
	for _, k := range []string{"spec", "element_spec"} {
		if text, ok := outputs[k].(string); ok && plain(text) != plain(inputcases.SpecText(spec, 1)) {
			got[k] = inputcases.SpecText(ds.Info().Spec, 1)
		}
	}
	got["cardinality"], got["length"] = float64(len(elements)), float64(len(elements))
	c.check(g.Outputs, got)
}

// arrays converts the nested input of a case for MakeNumpyDataset. In dictionaries and in a list of
// arrays, lists of numbers or strings are arrays.
func arrays(c *caseRun, x any, dtype string) any {
	switch x := x.(type) {
	case map[string]any:
		nest := map[string]any{}
		for k, y := range x {
			nest[k] = arrays(c, y, dtype)
		}
		return nest
	case []any:
		if isNest(x) {
			if texts, ok := stringsOf(x); ok {
				return texts
			}
			list := make([]any, len(x))
			for i, y := range x {
				list[i] = arrays(c, y, dtype)
			}
			return list
		}
	}
	return tensor(c, x, dtypeOf(dtype, x))
}

// stringsOf converts a list of strings.
func stringsOf(list []any) (texts []string, ok bool) {
	for _, x := range list {
		text, ok := x.(string)
		if !ok {
			return nil, false
		}
		texts = append(texts, text)
	}
	return texts, len(list) > 0
}

func hasStrings(e input.Element) bool {
	return slices.ContainsFunc(e.Leaves(), func(t input.Tensor) bool { return t.Kind() == input.String })
}

// shownElement converts an element to the cases' form without devices.
func shownElement(e input.Element) any {
	if e.IsLeaf() {
		return plainFloats(inputcases.Nested(e.Leaf()))
	}
	if keys := e.Keys(); keys != nil {
		m := map[string]any{}
		for i, k := range keys {
			m[k] = shownElement(e.At(i))
		}
		return m
	}
	list := []any{}
	for i := range e.Len() {
		list = append(list, shownElement(e.At(i)))
	}
	return list
}

// plainFloats converts the numbers in a nested structure to float64.
func plainFloats(x any) any {
	switch x := x.(type) {
	case []any:
		list := make([]any, len(x))
		for i := range x {
			list[i] = plainFloats(x[i])
		}
		return list
	case int32:
		return float64(x)
	case int64:
		return float64(x)
	case float32:
		return float64(x)
	}
	return x
}

func repeated(e input.Element, n int) []input.Element {
	list := make([]input.Element, n)
	for i := range list {
		list[i] = e
	}
	return list
}

// stack stacks elements: the result is a nested structure of tensors with a new leading dimension.
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
	if x := g.in("iterations"); g.has("iterations") {
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
		c.check(g.Outputs, map[string]any{"last_step_outputs": scalars(c.show(m.LastStepOutputs())),
			"non_tensor_outputs": others, "run_op": nil, "reduce_ops": ops})
	}
	// first returns the first element of a replica's batch.
	first := v.s.Function(func(_ *strategy.ReplicaContext, in []*graph.Node) []*graph.Node {
		return []*graph.Node{graph.ConvertDType(graph.Reshape(graph.Slice(in[0], graph.AxisRange(0, 1))), dtypes.Float32)}
	}, strategy.FunctionOptions{})
	switch {
	case strings.Contains(name, "wants a dict"):
		// The type accepts only a map.
		require.Equal(c, reflect.Map, reflect.TypeFor[*eager.MultiStepContext]().Elem().Field(1).Type.Kind())
		return
	case says(g.Outputs, saysReplica) || strings.Contains(name, "called in a replica context"):
		_, err := v.e.CallForEachReplica(ctx, func(rc *eager.ReplicaContext, _ ...any) (any, error) {
			return v.e.RunStepsOnIterator(rc.Context(), nil, open(), 1, nil)
		})
		c.check(g.Outputs, failed(err))
		return
	case says(g.Outputs, saysOther):
		other, err := eager.Of(v.other(c)).Scope(ctx)
		require.NoError(c, err)
		_, err = v.e.RunStepsOnIterator(other, nil, open(), 1, nil)
		c.check(g.Outputs, failed(err))
		return
	}
	if !titleHas(name, "replica context", "cross-replica", "cross-replica context", "outputs?", "iterations?", "steps?") {
		c.byName(g, v)
		return
	}
	// The recorded outputs determine the names and values to set. If the case has no outputs, the
	// title determines them.
	reduced, last, others := map[string]any{}, map[string]any{}, map[string]any{}
	if isFailure(g.Outputs) {
		last["y"] = nil
	} else {
		last, _ = g.outputs()["last_step_outputs"].(map[string]any)
		others, _ = g.outputs()["non_tensor_outputs"].(map[string]any)
		reduced, _ = g.outputs()["reduce_ops"].(map[string]any)
	}
	inReplica := titleHas(name, "replica context") && !titleHas(name, "cross-replica", "cross-replica context")
	// ops returns the reductions of an output, from the recorded outputs or the title.
	ops := func(output string) []strategy.ReduceOp {
		text, _ := reduced[output].(string)
		if isFailure(g.Outputs) {
			text = regexp.MustCompile(`\b(SUM|MEAN)\b`).FindString(name)
		}
		op, err := strategy.ParseReduceOp(text[strings.LastIndexByte(text, '.')+1:])
		if text == "" || err != nil {
			return nil
		}
		return []strategy.ReduceOp{op}
	}
	// set sets the outputs of one step.
	set := func(ctx context.Context, m *eager.MultiStepContext, y any) error {
		for _, output := range slices.Sorted(maps.Keys(last)) {
			if err := m.SetLastStepOutput(ctx, output, y, ops(output)...); err != nil {
				return err
			}
		}
		for _, output := range slices.Sorted(maps.Keys(others)) {
			value := plainValue(others[output])
			if list, ok := value.([]any); ok && inReplica { // one per replica, or one shared object
				value = list[0]
				if rc, _ := eager.ReplicaContextOf(ctx); len(list) > 1 {
					value = list[rc.ReplicaIDInSyncGroup()]
				}
			}
			if err := m.SetNonTensorOutput(ctx, output, value); err != nil {
				return err
			}
		}
		return nil
	}
	report(v.e.RunStepsOnIterator(ctx, func(ctx context.Context, m *eager.MultiStepContext, inputs any) error {
		if !inReplica {
			y, err := first.Run(ctx, inputs)
			if err != nil {
				return err
			}
			return set(ctx, m, y[0])
		}
		_, err := v.e.CallForEachReplica(ctx, func(rc *eager.ReplicaContext, args ...any) (any, error) {
			y, err := rc.Call(first, args[0])
			if err != nil {
				return nil, err
			}
			return nil, set(rc.Context(), m, y[0])
		}, inputs)
		return err
	}, open(), iterations, nil))
}

// scalars converts batches with one element to scalars.
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

// defaultCase runs the cases of the default strategy with one replica.
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
		"run": c.either(v.e.CallForEachReplica(ctx, func(*eager.ReplicaContext, ...any) (any, error) {
			return 2.0,
				nil
		})),
		"call_for_each_replica": c.either(v.e.CallForEachReplica(ctx, func(_ *eager.ReplicaContext, args ...any) (any,
			error) {
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
	got["update"] = c.either(v.e.Update(ctx, w, func(u *eager.UpdateContext, _ ...any) (any,
		error) {
		return u.AssignAdd(2.0)
	}))
	got["read_var"] = c.either(v.e.ReadVar(ctx, w))
	for k, x := range got { // a value with one component is not distributed
		if d, ok := x.(distributed); ok {
			got[k] = d.values[0]
		}
	}
	c.check(g.Outputs, got)
}

func baseCase(c *caseRun, g golden, v *env) {
	if hasEnums(g.outputs()) {
		enumsCase(c, g, v)
		return
	}
	if v.p > 1 {
		return // other devices than in the case
	}
	got := map[string]any{}
	for name, property := range v.properties() {
		got[name] = c.show(property())
	}
	c.check(g.Outputs, got)
}

// tpuVariableCase checks the logical devices of the replicas.
func tpuVariableCase(c *caseRun, g golden, v *env) {
	ctx := v.scope(c)
	outputs := g.outputs()
	if _, isError := errorOf(g.Outputs); isError || strings.Contains(g.Name, "negative") || strings.Contains(g.Name,
		"range") {
		k := v.p
		if strings.Contains(g.Name, "negative") {
			k = -1 // TensorFlow counts from the end; both return an error
		}
		_, err := v.e.LogicalDevice(ctx, k)
		require.Equal(c, errkind.ValueError, errkind.KindOf(err))
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
				part, err := x.LocalShard(ctx, r, p)
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
