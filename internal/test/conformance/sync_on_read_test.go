package conformance

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/gomlx/core/tensors"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/strategy/eager"
)

// onRead creates a sync-on-read variable with the given components.
func (v *env) onRead(c *caseRun, a strategy.VariableAggregation, components []any, dtype string) *strategy.Variable {
	all := tensorsOf(c, components, dtype)
	x := v.variable(c, all[0], strategy.VariableOptions{Synchronization: strategy.OnRead, Aggregation: a})
	v.setComponents(c, x, all)
	return x
}

// upTo returns the numbers 1.0 to n.
func upTo(n int) []any {
	var list []any
	for i := range n {
		list = append(list, json.Number(fmt.Sprintf("%d.0", i+1)))
	}
	return list
}

var (
	numbersText = regexp.MustCompile(`-?\d+(?:\.\d*)?`)
	callText    = regexp.MustCompile(`\b(assign|assign_add|assign_sub)\((-?[\d.]+)\)`)
	intoText    = regexp.MustCompile(`^into_(\d+)_replicas?$`)
)

// given returns the numbers in a text such as PerReplica(3,4). If their count is not the number of
// replicas, it returns 1.0 to n.
func (v *env) given(text string) []any {
	var list []any
	if _, rest, ok := strings.Cut(text, "PerReplica("); ok {
		inside, _, _ := strings.Cut(rest, ")")
		for _, x := range numbersText.FindAllString(inside, -1) {
			list = append(list, json.Number(strings.TrimSuffix(x, ".")))
		}
	}
	if len(list) != v.n { // such as the text 1..n
		return upTo(v.n)
	}
	return list
}

// float returns a number from the inputs.
func (g golden) float(name string, otherwise float64) float64 {
	switch x := plainNumber(g.in(name)).(type) {
	case int:
		return float64(x)
	case float64:
		return x
	}
	return otherwise
}

func syncOnReadCase(c *caseRun, g golden, v *env) {
	a := aggregationOf(g)
	ctx, name := v.ctx, g.Name
	read := func(x *strategy.Variable) any { return c.either(x.Read(ctx)) }
	host := func(x *strategy.Variable) any { return c.either(x.Value(ctx)) }
	components := g.list("components")
	if components == nil {
		components = upTo(v.n)
	}
	switch {
	case g.text("added") != "":
		x := v.variable(c, tensor(c, g.in("initial"), dtypes.Float32),
			strategy.VariableOptions{Synchronization: strategy.OnRead, Aggregation: a})
		out, err := v.e.CallForEachReplica(ctx, func(rc *eager.ReplicaContext, _ ...any) (any, error) {
			returned, err := rc.AssignAdd(x, replicaValue32(c, g.text("added"), rc))
			if err != nil {
				return nil, err
			}
			now, err := rc.Read(x)
			if err != nil {
				return nil, err
			}
			expr, err := rc.Add(now, 0.0)
			return []any{returned, now, expr}, err
		})
		require.NoError(c, err)
		list := out.([]any)
		plus := read(x)
		if d, ok := plus.(distributed); ok {
			plus = distributed{d.kind, append([]any(nil), d.values...)}
			for r := range d.values {
				plus.(distributed).values[r] = d.values[r].(float64) + 1
			}
		}
		scope := v.scope(c)
		got := map[string]any{
			"components": v.components(c, x), "replica_read": c.show(list[1]), "replica_expr": c.show(list[2]),
			"assign_returns": c.show(list[0]),
			"cross_read":     read(x), "cross_numpy": host(x), "cross_value": host(x), "cross_convert": read(x),
			"cross_expr_plus_1": plus,
			"scope_read":        c.either(x.Read(scope)), "read_var": c.either(v.e.ReadVar(scope, x)),
		}
		c.check(g.Outputs, got)
	case !strings.Contains(name, "cross-replica") &&
		titleHas(name, "(assign|assign_add|assign_sub) in (a |the )?replica context",
			"replica context,? (assign|assign_add|assign_sub)", "replica (assign|assign_add|assign_sub)"):
		v.replicaWrite(c, g)
	case g.outputs()["after_failed"] != nil:
		// In a write followed by a read of the result, the read fails after the write has
		// succeeded.
		value := g.float("value", 8)
		x := v.onRead(c, a, components, g.text("dtype"))
		require.NoError(c, x.Assign(ctx, value))
		got := map[string]any{"no_read": v.components(c, x)}
		flat, _ := flatten(g.outputs()["after_failed"]) // the case does not contain the second value
		require.NoError(c, x.Assign(ctx, flat[0]))
		got["with_read"], got["after_failed"] = read(x), v.components(c, x)
		c.check(g.Outputs, got)
	case strings.Contains(name, "read_value=False"):
		x := v.onRead(c, a, components, g.text("dtype"))
		value := g.float("value", 8)
		if err := x.Assign(ctx, value); err != nil {
			c.check(g.Outputs, failed(err))
			return
		}
		if _, ok := g.Outputs.([]any); ok {
			c.check(g.Outputs, v.components(c, x))
			return
		}
		c.check(g.Outputs, map[string]any{"components": v.components(c, x)})
	case strings.Contains(name, "cross-replica write"):
		got := map[string]any{}
		for k := range g.outputs() {
			w, ok := v.writes()[k]
			if !ok {
				c.unmapped("write %q", k)
			}
			x := v.onRead(c, a, components, g.text("dtype"))
			if err := w.cross(x, plainNumber(g.in("value"))); err != nil {
				got[k] = failed(err)
				continue
			}
			after := v.components(c, x)
			// TensorFlow's write returns the value that a read returns.
			back := read(x)
			if f, ok := back.(failure); ok {
				got[k] = f
				continue
			}
			got[k] = map[string]any{"components": after, "returned": back}
		}
		c.check(g.Outputs, got)
	case strings.Contains(name, "cross-replica read"):
		x := v.onRead(c, a, components, g.text("dtype"))
		if len(g.outputs()) == 0 || isFailure(g.Outputs) {
			c.check(g.Outputs, read(x))
			return
		}
		c.check(g.Outputs, map[string]any{"read_value": read(x), "value": host(x), "numpy": host(x), "read": read(x)})
	case isFailure(g.Outputs) && g.has("value") && g.text("value") == "" &&
		titleHas(name, "assign(_add|_sub)?(\\([^)]*\\))?"):
		verb := regexp.MustCompile(`\bassign(_add|_sub)?\b`).FindString(name)
		x := v.onRead(c, a, components, g.text("dtype"))
		err := v.writes()[verb].cross(x, plainNumber(g.in("value")))
		if err == nil { // TensorFlow reads the result after the write
			_, err = x.Read(ctx)
		}
		require.Error(c, err)
		c.check(g.Outputs, failed(err))
	case titleHas(name, "replica context", "in run(\\(\\))?", "inside run(\\(\\))?") && !strings.Contains(name,
		"cross-replica") && titleHas(name, "reads?"):
		x := v.onRead(c, a, components, g.text("dtype"))
		reads, err := v.e.CallForEachReplica(ctx, func(rc *eager.ReplicaContext, _ ...any) (any, error) { return rc.Read(x) })
		require.NoError(c, err)
		// The components of a variable are shown as the variable, but the case compares the values
		// of the replicas.
		if d, ok := c.show(reads).(distributed); ok {
			c.check(g.Outputs, distributed{"PerReplica", d.values})
			return
		}
		c.check(g.Outputs, c.show(reads))
	case strings.Contains(name, "of a PerReplica"):
		x := v.onRead(c, a, components, g.text("dtype"))
		c.check(g.Outputs, failed(x.Assign(ctx, v.perReplica(c, v.given(g.text("value")), g.text("dtype")))))
	case strings.HasPrefix(name, "integer SUM"):
		x := v.variable(c, tensor(c, json.Number("0"), dtypeOf(g.text("dtype"), g.in("value"))),
			strategy.VariableOptions{Synchronization: strategy.OnRead, Aggregation: strategy.AggregateSum})
		require.NoError(c, x.Assign(ctx, plainNumber(g.in("value"))))
		c.check(g.Outputs, map[string]any{"components": v.components(c, x), "read": read(x)})
	case strings.Contains(name, "update"):
		x := v.onRead(c, a, components, g.text("dtype"))
		reads, err := v.e.UpdateEach(ctx, x, func(u *eager.UpdateContext, _ ...any) (any, error) { return u.Read() })
		require.NoError(c, err)
		c.check(g.Outputs, c.show(reads))
	case strings.Contains(name, "scatter"):
		scatterCase(c, g, v)
	case strings.HasPrefix(name, "variable_sync_on_read_context"):
		x := v.variable(c, tensor(c, g.in("initial"), dtypes.Float32),
			strategy.VariableOptions{Synchronization: strategy.OnRead, Aggregation: strategy.AggregateSum})
		_, want, _ := distributedOf(g.outputs()["synced"])
		total, _ := flatten(want[0])
		// The sum of the components is the value that a read returns.
		read := func(across bool) any {
			return c.either(v.e.CallForEachReplica(ctx, func(rc *eager.ReplicaContext, _ ...any) (any, error) {
				if across {
					share := tensors.FromScalar(float32(total[0] / float64(v.n)))
					if _, err := rc.Assign(x, share); err != nil {
						return nil, err
					}
					return rc.ReadAcross(x)
				}
				if _, err := rc.Assign(x, tensors.FromScalar(float32(total[0]))); err != nil {
					return nil, err
				}
				return rc.Read(x)
			}))
		}
		c.check(g.Outputs, map[string]any{"plain": read(false), "synced": read(true)})
	case strings.Contains(name, "trainable"):
		yes := true
		def := v.variable(c, float32(1), strategy.VariableOptions{Synchronization: strategy.OnRead})
		given := v.variable(c, float32(1), strategy.VariableOptions{Synchronization: strategy.OnRead, Trainable: &yes})
		if b, ok := g.Outputs.(bool); ok {
			c.check(b, def.Trainable())
			return
		}
		c.check(g.Outputs, map[string]any{"default": def.Trainable(), "given": given.Trainable(), "True": given.Trainable(),
			"true": given.Trainable()})
	case strings.Contains(name, "default strategy") || strings.Contains(name, "outside"):
		x := v.onRead(c, a, components, g.text("dtype"))
		c.check(g.Outputs, read(x))
	default:
		c.byName(g, v)
	}
}

// replicaWrite writes the replicas' components in replica context.
func (v *env) replicaWrite(c *caseRun, g golden) {
	initial := g.in("initial")
	if initial == nil {
		initial = json.Number("0.0")
	}
	dtype := dtypeOf(g.text("dtype"), initial)
	verb := regexp.MustCompile(`\bassign(_add|_sub)?\b`).FindString(g.Name)
	x := v.variable(c, tensor(c, initial, dtype), strategy.VariableOptions{Synchronization: strategy.OnRead,
		Aggregation: aggregationOf(g)})
	if components := g.list("components"); components != nil {
		v.setComponents(c, x, tensorsOf(c, components, g.text("dtype")))
	}
	out, err := v.e.CallForEachReplica(v.ctx, func(rc *eager.ReplicaContext, _ ...any) (any, error) {
		var value any = plainNumber(g.in("value"))
		if text := g.text("value"); text != "" {
			value = tensor(c, python(c, text, rc.ReplicaIDInSyncGroup()), dtype)
		}
		returned, err := v.writes()[verb].replica(rc, x, value)
		if err != nil {
			return nil, err
		}
		now, err := rc.Read(x)
		return []any{returned, now}, err
	})
	if err != nil {
		c.check(g.Outputs, failed(err))
		return
	}
	list := out.([]any)
	if _, ok := g.Outputs.([]any); ok {
		c.check(g.Outputs, v.components(c, x))
		return
	}
	if len(g.outputs()) == 0 {
		c.check(g.Outputs, c.either(x.Read(v.ctx)))
		return
	}
	if _, _, ok := distributedOf(g.Outputs); ok {
		c.check(g.Outputs, c.show(list[1]))
		return
	}
	got := v.facts(c, g, x)
	got["returned"], got["replica_read"], got["replica_reads"] = c.show(list[0]), c.show(list[1]), c.show(list[1])
	c.check(g.Outputs, got)
}

func checkpointCase(c *caseRun, g golden, v *env) {
	components := g.list("components")
	a := aggregationOf(g)
	dtype := g.text("dtype")
	for _, d := range []string{"int32", "int64"} {
		if strings.Contains(g.Name, d) {
			dtype = d
		}
	}
	o := strategy.VariableOptions{Aggregation: a}
	if strings.HasPrefix(g.Name, "ON_READ") {
		o.Synchronization = strategy.OnRead
	}
	if strings.Contains(g.Name, "diverged") {
		o.LocalWrites = true
	}
	all := tensorsOf(c, components, dtype)
	x := v.variable(c, all[0], o)
	v.setComponents(c, x, all)
	saved, saveErr := x.SaveValue(v.ctx)
	restore := func(s *strategy.TPUStrategy, o strategy.VariableOptions, plain bool) any {
		if saveErr != nil {
			return failed(saveErr)
		}
		zero := tensors.FromShape(saved.Shape())
		y, err := s.NewVariable(v.ctx, zero, o)
		require.NoError(c, err)
		defer y.Close()
		if err := y.RestoreValue(v.ctx, saved); err != nil {
			return failed(err)
		}
		got := map[string]any{"saved": c.show(saved), "cross_read": c.either(y.Value(v.ctx)), "restored": c.show(y)}
		d := got["restored"].(distributed)
		got["restored"] = d.values
		if plain {
			got["restored"] = d.values[0]
		}
		return got
	}
	same := restore(v.s, o, false)
	if g.outputs()["same"] == nil {
		c.check(g.Outputs, same)
		return
	}
	got := map[string]any{"same": same}
	for k := range g.outputs() {
		switch m := intoText.FindStringSubmatch(k); {
		case m != nil:
			n, err := strconv.Atoi(m[1])
			require.NoError(c, err)
			got[k] = restore(v.w.get(c, v.semantics, n, min(v.p, maxDevices/n), ""), o, false)
		case k == "into_plain_variable":
			got[k] = restore(v.w.get(c, v.semantics, 1, v.p, ""), strategy.VariableOptions{}, true)
		}
	}
	c.check(g.Outputs, got)
}
