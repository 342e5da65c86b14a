package conformance

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"regexp"
	"strings"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/core/tensors"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/strategy/eager"
)

var aggregations = map[string]strategy.VariableAggregation{
	"NONE": strategy.AggregateNone, "SUM": strategy.AggregateSum, "MEAN": strategy.AggregateMean, "ONLY_FIRST_REPLICA": strategy.AggregateFirst,
}

var aggregationText = regexp.MustCompile(`\b(?:aggregation|int(?:32|64)) (NONE|SUM|MEAN|ONLY_FIRST_REPLICA)\b`)

// aggregationOf finds the aggregation in the name.
func aggregationOf(g golden) strategy.VariableAggregation {
	if m := aggregationText.FindStringSubmatch(g.Name); m != nil {
		return aggregations[m[1]]
	}
	for _, name := range []string{"ONLY_FIRST_REPLICA", "MEAN", "SUM", "NONE"} {
		if strings.Contains(g.Name, name) {
			return aggregations[name]
		}
	}
	return strategy.AggregateNone
}

func shortDevices(names []string) []any {
	var short []any
	for _, name := range names {
		short = append(short, name[strings.LastIndexByte(name, '/')+1:])
	}
	return short
}

func variableCase(c *caseRun, g golden, v *env) {
	name := g.Name
	make := func(o strategy.VariableOptions) any {
		o.Name = "x"
		x, err := v.s.NewVariable(v.ctx, float32(1), o)
		if err != nil {
			return failed(err)
		}
		defer x.Close()
		return x.Trainable()
	}
	switch {
	case g.in("init") != nil:
		o := strategy.VariableOptions{Name: g.text("name"), Aggregation: aggregationOf(g)}
		class := "MirroredVariable"
		if strings.Contains(name, "read") || strings.Contains(name, "ON_READ") {
			o.Synchronization, class = strategy.OnRead, "SyncOnReadVariable"
		}
		if t, _ := g.outputs()["type"].(string); strings.HasPrefix(t, "TPUDistributed") || strings.HasSuffix(t, class) {
			class = t // TPUDistributedVariable is of both sorts
		}
		x := v.variable(c, tensor(c, g.in("init"), dtypeOf(g.text("dtype"), g.in("init"))), o)
		var names []any
		for r := range v.n {
			names = append(names, x.ComponentName(r))
		}
		shape := strings.ReplaceAll(strings.Trim(fmt.Sprint(x.Shape().Dimensions), "[]"), " ", ", ")
		if x.Shape().Rank() == 1 {
			shape += ","
		}
		devices := shortDevices(x.Devices())
		for r := range devices { // replicas of several logical devices are further apart
			if v.p > 1 {
				devices[r] = fmt.Sprintf("device:CPU:%d", r)
			}
		}
		c.check(g.Outputs, map[string]any{
			"type": class, "names": names, "name": x.Path(), "devices": devices,
			"values": v.components(c, x), "trainable": x.Trainable(), "dtype": strings.ToLower(x.Shape().DType.String()), "shape": "(" + shape + ")",
			"synchronization": x.Synchronization().String(), "aggregation": x.Aggregation().String(),
			"strategy_is": x.Strategy() == v.s, "is_mirrored": x.Synchronization() == strategy.OnWrite,
		})
	case strings.Contains(name, "random initializer"):
		calls := 0
		x := v.variable(c, func() any {
			calls++
			return rand.Float32()
		}, strategy.VariableOptions{})
		c.check(g.Outputs, map[string]any{"all_equal": allEqual(v.components(c, x)), "calls": float64(calls)})
	case titleHas(name, "created (in|inside) run(\\(\\))?", "created by all replicas", "created in (a )?replica context", "created in the replicas"):
		v.createdInRun(c, g)
	case titleHas(name, "synchronization NONE"):
		c.check(g.Outputs, make(strategy.VariableOptions{Synchronization: strategy.SyncNone}))
	case titleHas(name, "synchronization invalid", "invalid synchronization"):
		c.check(g.Outputs, make(strategy.VariableOptions{Synchronization: 9}))
	case titleHas(name, "aggregation invalid", "invalid aggregation"):
		c.check(g.Outputs, make(strategy.VariableOptions{Aggregation: 9}))
	case (strings.Contains(name, "int") || strings.Contains(name, "bool")) && strings.Contains(name, "MEAN"):
		o := strategy.VariableOptions{Aggregation: strategy.AggregateMean}
		if strings.Contains(name, "read") || strings.Contains(name, "ON_READ") {
			o.Synchronization = strategy.OnRead
		}
		_, err := v.s.NewVariable(v.ctx, tensor(c, json.Number("1"), dtypeIn(name)), o)
		c.check(g.Outputs, failed(err))
	case strings.Contains(name, "trainable"):
		yes := true
		got := map[string]any{}
		for k := range g.outputs() {
			o := strategy.VariableOptions{}
			if strings.Contains(k, "read") {
				o.Synchronization = strategy.OnRead
			}
			if strings.Contains(k, "true") || strings.Contains(k, "given") {
				o.Trainable = &yes
			}
			got[k] = make(o)
		}
		if len(got) == 0 {
			got["x"] = nil
			c.check(g.Outputs, make(strategy.VariableOptions{Synchronization: strategy.OnRead}))
			return
		}
		c.check(g.Outputs, got)
	case strings.Contains(name, "another strategy"):
		x := v.variable(c, float32(1), strategy.VariableOptions{})
		other, err := eager.Of(v.other(c)).Scope(v.ctx)
		require.NoError(c, err)
		c.check(g.Outputs, failed(x.AssignAdd(other, 1.0)))
		_, err = x.Read(other)
		c.check(g.Outputs, failed(err))
	case titleHas(name, "read", "reads", "used", "value", "assign\\w*", "written", "arithmetic", "convert\\w*"):
		v.variableFacts(c, g)
	case len(g.outputs()) == 0 && !isFailure(g.Outputs):
		facts := v.facts(c, g, v.variable(c, float32(1), strategy.VariableOptions{}))
		for _, word := range wordsOf(name) {
			if fact, ok := facts[word]; ok {
				c.check(g.Outputs, fact)
				return
			}
		}
		c.byName(g, v)
	default:
		c.byName(g, v)
	}
}

// createdInRun creates a variable in the replicas' code and reports what it is.
func (v *env) createdInRun(c *caseRun, g golden) {
	outputs := g.outputs()
	base := 1.0 // replica 0's initial value; each replica passes 1 more
	if _, values, ok := distributedOf(outputs["values"]); ok {
		flat, _ := flatten(values)
		base = flat[0]
	}
	o := strategy.VariableOptions{Name: "x", Aggregation: aggregationOf(g)}
	if titleHas(g.Name, "ON_READ", "sync-on-read") {
		o.Synchronization = strategy.OnRead
	}
	var made []*strategy.Variable
	_, err := v.e.CallForEachReplica(v.ctx, func(rc *eager.ReplicaContext, _ ...any) (any, error) {
		x, err := rc.NewVariable(float32(base)+float32(rc.ReplicaIDInSyncGroup()), o)
		made = append(made, x)
		return nil, err
	})
	if err != nil {
		c.check(g.Outputs, failed(err))
		return
	}
	c.Cleanup(func() { _ = made[0].Close() })
	for _, x := range made {
		require.Same(c, made[0], x)
	}
	x := made[0]
	got := v.facts(c, g, x)
	for _, k := range []string{"same", "same_object", "one_variable"} {
		got[k] = true
	}
	first := v.components(c, x)[0].(float64)
	got["initializer_taken_from"] = fmt.Sprintf("replica %d", int(first-base))
	got["count"], got["variables"], got["number_of_variables"] = 1.0, 1.0, 1.0
	if len(outputs) == 0 {
		c.check(g.Outputs, c.show(x))
		return
	}
	c.check(g.Outputs, got)
}

// facts are what cases ask of a variable, by name.
func (v *env) facts(c *caseRun, g golden, x *strategy.Variable) map[string]any {
	class := "MirroredVariable"
	if x.Synchronization() == strategy.OnRead {
		class = "SyncOnReadVariable"
	}
	// TPUDistributedVariable and the like are of both sorts.
	if t, _ := g.outputs()["type"].(string); strings.HasPrefix(t, "TPU") || strings.HasSuffix(t, class) {
		class = t
	}
	read := c.either(x.Read(v.ctx))
	after := func(by func(a, b *graph.Node) *graph.Node) any {
		f := v.s.Function(func(_ *strategy.ReplicaContext, in []*graph.Node) []*graph.Node {
			return []*graph.Node{by(in[0], graph.OnesLike(in[0]))}
		}, strategy.FunctionOptions{})
		value, err := x.Read(v.ctx)
		if err != nil {
			return failed(err)
		}
		out, err := f.Run(v.ctx, value)
		if err != nil {
			return failed(err)
		}
		return c.show(out[0]).(distributed).values[0]
	}
	host := c.either(x.Value(v.ctx))
	got := map[string]any{
		"type": class, "name": x.Path(), "values": c.show(x), "components": v.components(c, x), "trainable": x.Trainable(),
		"synchronization": x.Synchronization().String(), "aggregation": x.Aggregation().String(), "strategy_is": x.Strategy() == v.s,
		"is_mirrored": x.Synchronization() == strategy.OnWrite, "created_in_scope": v.e.VariableCreatedInScope(x), "variable_created_in_scope": v.e.VariableCreatedInScope(x),
	}
	if _, list := g.outputs()["values"].([]any); list {
		got["values"] = got["components"]
	}
	for _, k := range []string{"read", "read_value", "cross_read", "convert", "convert_to_tensor", "identity", "scope_read"} {
		got[k] = read
	}
	got["read_var"] = c.either(v.e.ReadVar(v.ctx, x))
	for _, k := range []string{"value", "numpy", "float", "cross_numpy"} {
		got[k] = host
	}
	for key, by := range map[string]func(a, b *graph.Node) *graph.Node{"add": graph.Add, "sub": graph.Sub, "mul": graph.Mul, "div": graph.Div} {
		for _, k := range []string{key, key + "_1", "expr_" + key} {
			if _, ok := g.outputs()[k]; ok {
				got[k] = after(by)
			}
		}
	}
	return got
}

// variableFacts reads, and writes if the outputs have a write, a variable outside every scope or in
// the scope, whichever the title names.
func (v *env) variableFacts(c *caseRun, g golden) {
	outputs := g.outputs()
	if titleHas(g.Name, "inside the scope", "in the scope", "in scope") {
		v.ctx = v.scope(c)
	}
	o := strategy.VariableOptions{Aggregation: aggregationOf(g)}
	if titleHas(g.Name, "ON_READ", "sync-on-read") {
		o.Synchronization = strategy.OnRead
	}
	initial := g.in("initial")
	for _, k := range []string{"read_value", "numpy", "value", "convert", "read"} {
		if x, ok := outputs[k].(json.Number); ok && initial == nil {
			initial = x // the case does not give it
		}
	}
	if initial == nil {
		initial = json.Number("1.0")
	}
	fresh := func() *strategy.Variable {
		return v.variable(c, tensor(c, initial, dtypeOf(g.text("dtype"), initial)), o)
	}
	got := v.facts(c, g, fresh())
	for k, want := range outputs {
		w, ok := v.writes()[k]
		if !ok {
			continue
		}
		x := fresh()
		value := g.in("value")
		if value == nil { // worked back from the result
			flat, _ := flatten(want)
			if _, values, ok := distributedOf(want); ok {
				flat, _ = flatten(values)
			}
			start, _ := flatten(initial)
			if len(flat) == 0 {
				c.unmapped("value of %s", k)
			}
			value = map[string]any{"assign": flat[0], "assign_add": flat[0] - start[0], "assign_sub": start[0] - flat[0]}[k]
		}
		if err := w.cross(x, tensor(c, value, dtypeOf(g.text("dtype"), initial))); err != nil {
			got[k] = failed(err)
			continue
		}
		got[k] = c.show(x)
		if kind, _, ok := distributedOf(want); ok && kind == "Mirrored" && allEqual(v.components(c, x)) {
			got[k] = distributed{kind, v.components(c, x)}
		} else if !ok {
			got[k] = v.components(c, x)
			if _, list := want.([]any); !list {
				got[k] = c.either(x.Read(v.ctx))
			}
		}
	}
	if len(outputs) == 0 {
		c.check(g.Outputs, got["read"])
		return
	}
	c.check(g.Outputs, got)
}

type write struct {
	cross   func(x *strategy.Variable, value any) error
	replica func(rc *eager.ReplicaContext, x *strategy.Variable, value any) (any, error)
}

func (v *env) writes() map[string]write {
	return map[string]write{
		"assign": {func(x *strategy.Variable, value any) error { return x.Assign(v.ctx, value) },
			func(rc *eager.ReplicaContext, x *strategy.Variable, value any) (any, error) {
				return rc.Assign(x, value)
			}},
		"assign_add": {func(x *strategy.Variable, value any) error { return x.AssignAdd(v.ctx, value) },
			func(rc *eager.ReplicaContext, x *strategy.Variable, value any) (any, error) {
				return rc.AssignAdd(x, value)
			}},
		"assign_sub": {func(x *strategy.Variable, value any) error { return x.AssignSub(v.ctx, value) },
			func(rc *eager.ReplicaContext, x *strategy.Variable, value any) (any, error) {
				return rc.AssignSub(x, value)
			}},
	}
}

var mirroredText = regexp.MustCompile(`^mirrored (-?[\d.]+)$`)

func mirroredWriteCase(c *caseRun, g golden, v *env) {
	aggregation := aggregationOf(g)
	initial := g.in("initial")
	if initial == nil {
		initial = json.Number("10.0")
	}
	dtype := dtypeOf(g.text("dtype"), initial)
	value := g.in("value")
	_, values, isDistributed := distributedOf(value)
	fresh := func() *strategy.Variable {
		o := strategy.VariableOptions{Aggregation: aggregation}
		// Components are written apart where the case does so.
		if kind, _, ok := distributedOf(value); aggregation == strategy.AggregateNone || ok && kind == "PerReplica" {
			o.LocalWrites = true
		}
		return v.variable(c, tensor(c, initial, dtype), o)
	}
	if aggregation == strategy.AggregateMean && dtype.IsInt() {
		_, err := v.s.NewVariable(v.ctx, int32(1), strategy.VariableOptions{Aggregation: aggregation})
		if _, ok := errorOf(g.Outputs); ok {
			c.check(g.Outputs, failed(err))
			return
		}
		got := map[string]any{}
		for k := range g.outputs() {
			got[k] = failed(err)
		}
		c.check(g.Outputs, got)
		return
	}
	switch {
	case strings.Contains(g.Name, "default strategy"):
		x := v.variable(c, float32(10), strategy.VariableOptions{LocalWrites: true})
		require.NoError(c, x.AssignAdd(v.ctx, 5.0))
		c.check(g.Outputs, v.components(c, x))
		return
	case g.outputs()["cross_read"] != nil:
		x := fresh()
		reads, err := v.e.CallForEachReplica(v.ctx, func(rc *eager.ReplicaContext, _ ...any) (any, error) {
			if _, err := rc.Assign(x, replicaValue32(c, g.text("value"), rc)); err != nil {
				return nil, err
			}
			return rc.Read(x)
		})
		require.NoError(c, err)
		c.check(g.Outputs, map[string]any{"components": v.components(c, x), "cross_read": c.either(x.Read(v.ctx)), "replica_reads": c.show(reads)})
		return
	case strings.Contains(g.Name, "another strategy"):
		x := fresh()
		other, err := eager.Of(v.other(c)).Scope(v.ctx)
		require.NoError(c, err)
		c.check(g.Outputs, failed(x.Assign(other, 1.0)))
		return
	}
	got := map[string]any{}
	replica := strings.HasPrefix(g.Name, "replica context")
	for k := range g.outputs() {
		w, ok := v.writes()[k]
		if !ok {
			c.unmapped("write %q", k)
		}
		x := fresh()
		if replica {
			var shared any
			text, isText := value.(string)
			switch {
			case !isText:
				shared = plainNumber(value)
			case strings.HasPrefix(text, "one tensor object"):
				shared = tensors.FromScalar(float32(evaluate(c, strings.TrimPrefix(text, "one tensor object "), 0).(float64)))
			}
			returned, err := v.e.CallForEachReplica(v.ctx, func(rc *eager.ReplicaContext, _ ...any) (any, error) {
				y := shared
				if m := constantText.FindStringSubmatch(text); m != nil {
					y = tensor(c, evaluate(c, m[1], 0), dtype)
				} else if y == nil {
					y = tensor(c, evaluate(c, text, rc.ReplicaIDInSyncGroup()), dtype)
				}
				return w.replica(rc, x, y)
			})
			if err != nil {
				got[k] = failed(err)
				continue
			}
			got[k] = map[string]any{"components": v.components(c, x), "returned": c.show(returned)}
			continue
		}
		var y any
		text, _ := value.(string)
		switch m := mirroredText.FindStringSubmatch(text); {
		case m != nil:
			y = v.variable(c, tensor(c, json.Number(m[1]), dtype), strategy.VariableOptions{})
		case isDistributed && !allEqual(values) || isDistributed && strings.Contains(fmt.Sprint(value), "PerReplica"):
			y = v.perReplica(c, values, strings.ToLower(dtype.String()))
		case isDistributed:
			mirrored, err := v.s.Mirror(v.ctx, tensor(c, values[0], dtype), noAnnotation)
			require.NoError(c, err)
			y = mirrored
		case text == "":
			if y = plainNumber(value); y == nil { // a list of them
				y = tensor(c, value, dtype)
			}
		default:
			c.unmapped("value %q", text)
		}
		if err := w.cross(x, y); err != nil {
			got[k] = failed(err)
			continue
		}
		// What a write returns there is the variable's new value, mirrored; with one
		// replica, its one component.
		returned := "Mirrored"
		if v.n == 1 {
			returned = map[strategy.Semantics]string{strategy.TensorFlowMirrored: "_UnreadVariable", strategy.TensorFlowTPU: "EagerTensor"}[v.semantics]
		}
		got[k] = map[string]any{"components": v.components(c, x), "returned_type": returned}
	}
	if len(got) == 0 {
		c.byName(g, v)
		return
	}
	c.check(g.Outputs, got)
}

var constantText = regexp.MustCompile(`^tf\.constant\((-?[\d.]+)[^)]*\) made in each replica$`)

func replicaValue32(c *caseRun, text string, rc *eager.ReplicaContext) *tensors.Tensor {
	return tensor(c, evaluate(c, text, rc.ReplicaIDInSyncGroup()), dtypes.Float32)
}

// plainNumber is a Python number: one object, wherever it is used.
func plainNumber(x any) any {
	switch y := plainValue(x).(type) {
	case int:
		return y
	case float64:
		return y
	}
	return nil
}

var scatterText = regexp.MustCompile(`index (\d+), value (\S+?),`)

func scatterCase(c *caseRun, g golden, v *env) {
	if g.Section == "sync_on_read" || strings.HasPrefix(g.Name, "sync") || strings.Contains(g.Name, "ON_READ") {
		got := map[string]any{}
		_, whole := errorOf(g.Outputs)
		for op := strategy.ScatterAdd; op <= strategy.ScatterMax; op++ {
			x := v.variable(c, []float32{1, 1, 1}, strategy.VariableOptions{Synchronization: strategy.OnRead, Aggregation: strategy.AggregateSum})
			got[op.String()] = failed(x.Scatter(v.ctx, op, []int32{1}, []float32{5}))
			_, err := v.e.CallForEachReplica(v.ctx, func(rc *eager.ReplicaContext, _ ...any) (any, error) {
				return rc.Scatter(op, x, []int32{1}, []float32{5})
			})
			require.Equal(c, errkind.NotImplementedError, errkind.Of(err))
			if whole {
				c.check(g.Outputs, got[op.String()])
			}
		}
		if !whole {
			c.check(g.Outputs, got)
		}
		return
	}
	m := scatterText.FindStringSubmatch(g.Name)
	if m == nil {
		c.byName(g, v)
		return
	}
	aggregation := aggregationOf(g)
	index := []int32{int32(evaluate(c, m[1], 0).(float64))}
	got := map[string]any{}
	for op := strategy.ScatterAdd; op <= strategy.ScatterMax; op++ {
		if _, ok := g.outputs()[op.String()]; !ok {
			continue
		}
		x := v.variable(c, tensor(c, g.in("initial"), dtypes.Float32), strategy.VariableOptions{
			Aggregation: aggregation, LocalWrites: aggregation == strategy.AggregateNone})
		var err error
		if strings.Contains(g.Name, "cross-replica") {
			err = x.Scatter(v.ctx, op, index, []float32{float32(evaluate(c, m[2], 0).(float64))})
		} else {
			_, err = v.e.CallForEachReplica(v.ctx, func(rc *eager.ReplicaContext, _ ...any) (any, error) {
				return rc.Scatter(op, x, index, []float32{float32(evaluate(c, m[2], rc.ReplicaIDInSyncGroup()).(float64))})
			})
		}
		if err != nil {
			got[op.String()] = failed(err)
			continue
		}
		got[op.String()] = v.components(c, x)
	}
	c.check(g.Outputs, got)
}
