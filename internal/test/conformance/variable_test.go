package conformance

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"regexp"
	"strings"

	"github.com/gomlx/gomlx/core/graph"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/strategy/eager"
)

var aggregations = map[string]strategy.VariableAggregation{
	"NONE": strategy.AggregateNone, "SUM": strategy.AggregateSum, "MEAN": strategy.AggregateMean,
	"ONLY_FIRST_REPLICA": strategy.AggregateFirst,
}

var aggregationText = regexp.MustCompile(`\b(?:aggregation|int(?:32|64)) (NONE|SUM|MEAN|ONLY_FIRST_REPLICA)\b`)

// aggregationOf returns the aggregation in the name.
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
			class = t // TPUDistributedVariable is used for both kinds of synchronization
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
		for r := range devices { // replicas with several logical devices have other device IDs
			if v.p > 1 {
				devices[r] = fmt.Sprintf("device:CPU:%d", r)
			}
		}
		c.check(g.Outputs, map[string]any{
			"type": class, "names": names, "name": x.Path(), "devices": devices,
			"values": v.components(c, x), "trainable": x.Trainable(), "dtype": strings.ToLower(x.Shape().DType.String()),
			"shape":           "(" + shape + ")",
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
	case titleHas(name, "created (in|inside) run(\\(\\))?", "created by all replicas", "created in (a )?replica context",
		"created in the replicas"):
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

// createdInRun creates a variable in the replicas' code and checks its properties.
func (v *env) createdInRun(c *caseRun, g golden) {
	outputs := g.outputs()
	base := 1.0 // initial value of replica 0; each replica adds its ID
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

// facts returns the properties of a variable by the names in the cases.
func (v *env) facts(c *caseRun, g golden, x *strategy.Variable) map[string]any {
	class := "MirroredVariable"
	if x.Synchronization() == strategy.OnRead {
		class = "SyncOnReadVariable"
	}
	// TensorFlow uses TPUDistributedVariable and similar classes for both kinds of synchronization.
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
		"synchronization": x.Synchronization().String(), "aggregation": x.Aggregation().String(),
		"strategy_is": x.Strategy() == v.s,
		"is_mirrored": x.Synchronization() == strategy.OnWrite, "created_in_scope": v.e.VariableCreatedInScope(x),
		"variable_created_in_scope": v.e.VariableCreatedInScope(x),
	}
	if _, list := g.outputs()["values"].([]any); list {
		got["values"] = got["components"]
	}
	for _, k := range []string{"read", "read_value", "cross_read", "convert", "convert_to_tensor", "identity",
		"scope_read"} {
		got[k] = read
	}
	got["read_var"] = c.either(v.e.ReadVar(v.ctx, x))
	for _, k := range []string{"value", "numpy", "float", "cross_numpy"} {
		got[k] = host
	}
	for key, by := range map[string]func(a, b *graph.Node) *graph.Node{"add": graph.Add, "sub": graph.Sub,
		"mul": graph.Mul, "div": graph.Div} {
		for _, k := range []string{key, key + "_1", "expr_" + key} {
			if _, ok := g.outputs()[k]; ok {
				got[k] = after(by)
			}
		}
	}
	return got
}

// variableFacts checks the reads and, if the outputs contain a write, the writes of a variable. The
// title determines whether the variable is used in the strategy's scope or outside of every scope.
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
			initial = x // the case does not contain it
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
		if value == nil { // derived from the result
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
