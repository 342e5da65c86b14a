package conformance

import (
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/strategy/eager"
)

// replicas converts the values of the replicas in a case to distributed values. The supported forms
// are a list of values, a list of nested structures, values with a class, and an expression that
// each replica computes.
func (v *env) replicas(c *caseRun, x any, dtype string) any {
	if kind, values, ok := distributedOf(x); ok {
		return v.distributed(c, kind, values, dtype)
	}
	switch x := x.(type) {
	case string:
		return v.each(c, func(r int) any { return replicaValue(c, x, r) })
	case []any:
		if len(x) != v.n {
			c.unmapped("%d values for %d replicas: %v", len(x), v.n, x)
		}
		if isNest(x) {
			return v.each(c, func(r int) any { return replicaValue(c, x[r], r) })
		}
		return v.perReplica(c, x, dtype)
	case map[string]any:
		nest := map[string]any{}
		for k, y := range x {
			nest[k] = v.replicas(c, y, dtype)
		}
		return nest
	}
	c.unmapped("a value for each replica: %v", x)
	return nil
}

// each returns distributed values that of computes for each replica.
func (v *env) each(c *caseRun, of func(replica int) any) any {
	x, err := v.e.ValuesFromFunction(v.ctx, func(at eager.ValueContext) (any, error) {
		return of(at.ReplicaIDInSyncGroup),
			nil
	})
	require.NoError(c, err)
	return x
}

// distributed converts values with a class to a distributed value of this class.
func (v *env) distributed(c *caseRun, kind string, values []any, dtype string) any {
	if len(values) != v.n {
		c.unmapped("%d components for %d replicas: %v", len(values), v.n, values)
	}
	switch {
	case kind == "Variable":
		all := tensorsOf(c, values, dtype)
		x := v.variable(c, all[0], strategy.VariableOptions{LocalWrites: !allEqual(values)})
		if !allEqual(values) {
			v.setComponents(c, x, all)
		}
		return x
	case kind == "Mirrored" && allEqual(values) && !isNest(values):
		m, err := v.s.Mirror(v.ctx, tensor(c, values[0], dtypeOf(dtype, values[0])), noAnnotation)
		require.NoError(c, err)
		return m
	case isNest(values):
		return v.each(c, func(r int) any { return replicaValue(c, values[r], r) })
	}
	return v.perReplica(c, values, dtype)
}

// one converts the input "value": a host value, unless it has the form of a distributed value.
// Lists in a dictionary are distributed values if they have one value per replica.
func (v *env) one(c *caseRun, x any, dtype string) any {
	if _, _, ok := distributedOf(x); ok {
		return v.replicas(c, x, dtype)
	}
	switch x := x.(type) {
	case nil:
		c.unmapped("no value")
	case string:
		return v.replicas(c, x, dtype)
	case map[string]any:
		nest := map[string]any{}
		for k, y := range x {
			if list, ok := y.([]any); ok && len(list) == v.n {
				nest[k] = v.replicas(c, list, dtype)
			} else {
				nest[k] = v.one(c, y, dtype)
			}
		}
		return nest
	case []any:
		if isNest(x) {
			list := make([]any, len(x))
			for i, y := range x {
				list[i] = v.one(c, y, dtype)
			}
			return list
		}
	}
	return tensor(c, x, dtypeOf(dtype, x))
}

// input returns the input value of a case: "values" contains the values of the replicas, and
// "value" a single value.
func (v *env) input(c *caseRun, g golden) any {
	if x := g.in("values"); g.has("values") {
		return v.replicas(c, x, g.text("dtype"))
	}
	if x := g.in("value"); g.has("value") {
		return v.one(c, x, g.text("dtype"))
	}
	return v.perReplica(c, upTo(v.n), "")
}

// part returns the input value of one replica, for code that runs in the replica.
func (v *env) part(c *caseRun, g golden, replica int) any {
	x := g.in("values")
	if !g.has("values") {
		if x = g.in("value"); !g.has("value") {
			c.unmapped("a replica's value in %v", g.Inputs)
		}
		return replicaValue(c, x, replica)
	}
	list, ok := x.([]any)
	switch {
	case !ok:
		return replicaValue(c, x, replica)
	case len(list) != v.n:
		c.unmapped("%d values for %d replicas", len(list), v.n)
	case isNest(list):
		return replicaValue(c, list[replica], replica)
	}
	return tensorsOf(c, list, g.text("dtype"))[replica]
}
