package conformance

import (
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/strategy/eager"
)

// replicas is a value for each replica, in whichever form a case gives it: a list of them, a nest of
// such lists, a distributed value by its class, or the expression that each replica computes.
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

// each makes distributed values of what a function gives for each replica.
func (v *env) each(c *caseRun, of func(replica int) any) any {
	x, err := v.e.ValuesFromFunction(v.ctx, func(at eager.ValueContext) (any, error) {
		return of(at.ReplicaIDInSyncGroup),
			nil
	})
	require.NoError(c, err)
	return x
}

// distributed is a value that a case gives by its class.
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

// one is what a case calls "value": one host value, unless its form says that it is distributed.
// Lists in a dictionary are distributed values, if they have a value for each replica.
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

// input is the value of a case: "values" for the replicas, or "value".
func (v *env) input(c *caseRun, g golden) any {
	if x := g.in("values"); g.has("values") {
		return v.replicas(c, x, g.text("dtype"))
	}
	if x := g.in("value"); g.has("value") {
		return v.one(c, x, g.text("dtype"))
	}
	return v.perReplica(c, upTo(v.n), "")
}

// part is a replica's own value of a case, for code that runs in the replica.
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
