package eager

import (
	"context"

	"github.com/gomlx/gomlx/core/graph"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/internal/engine"
	"github.com/tpustrategy/tpustrategy/internal/engine/assign"
	"github.com/tpustrategy/tpustrategy/internal/engine/fault"
	"github.com/tpustrategy/tpustrategy/strategy"
)

// With the semantics of TPUStrategy a non-slot update runs one function, on the host, for all
// replicas. Each operand of the function must be the same on all replicas.

// operand returns one value for the replicas' leaves of an operand. In the function of a non-slot
// update on the host, a leaf that differs between replicas is an error.
func (rc *ReplicaContext) operand(call string, i int, leaves []any) (strategy.Value, func(), error) {
	if !rc.onHost {
		return Of(rc.strategy).mergeLeaves(rc.callerContext(), call, leaves)
	}
	machine := engine.Internal(rc.strategy)
	switch x := leaves[0].(type) {
	case *strategy.Objects:
		if x != nil {
			return nil, nil, newVaryingError(call, i, x)
		}
	case *strategy.PerReplica:
		if x != nil && machine.CheckOwned(call, x) == nil && isVarying(x) && rc.NumReplicasInSync() > 1 {
			return nil, nil, newVaryingError(call, i, x)
		}
	}
	m, release, err := machine.ResolveMirrored(rc.callerContext(), call, leaves[0])
	if err != nil {
		return nil, nil, err
	}
	return m, func() { _ = release() }, nil
}

// tracedOperand is like operand, in a merge call of a compiled step.
func (rc *ReplicaContext) tracedOperand(call string, i int, x any) *graph.Node {
	if v, ok := x.(*strategy.Variable); ok && v != nil && rc.onHost {
		return rc.tracing.Read(v).node
	}
	m := rc.tracing.value(call, x)
	if rc.onHost && rc.isVarying(m) {
		panic(newVaryingError(call, i, m))
	}
	return m.node
}

func (rc *ReplicaContext) isVarying(m *MergeValue) bool {
	return !m.Mirrored() && rc.strategy.NumReplicasInSync() > 1
}

// newVaryingError returns the error for an operand that differs between replicas, in a function on
// the host.
func newVaryingError(call string, i int, x any) error {
	return fault.New(errkind.ValueError, call, "reduce it first, or take one replica's part with Extended.LocalResultsOf",
		"operand %d, %s, has a value for each replica, and none on the host where a non-slot update runs", i, x)
}

// mirroredComponents replaces results of a compiled function that are equal on all replicas by
// components.
func (rc *ReplicaContext) mirroredComponents(results []any) []any {
	for i, x := range results {
		if v, ok := x.(strategy.Value); ok && !isVarying(v) {
			results[i] = Component{value: v}
		}
	}
	return results
}

// writeAllComponents writes all components of a variable by calling write, and returns the
// variable's new value.
func (rc *ReplicaContext) writeAllComponents(call string, v *strategy.Variable,
	write func(ctx context.Context) error) (any, error) {
	var err error
	if rc.tracing != nil {
		err = write(rc.tracing.Context())
	} else {
		_, err = rc.callCollective(call, v, nil, func([]any) ([]any, error) { return []any{nil}, write(rc.callerContext()) })
	}
	if err != nil {
		return nil, err
	}
	return rc.Read(v)
}

// assignAllComponents calls the variable's method for a write.
func assignAllComponents(ctx context.Context, w assign.Op, v *strategy.Variable, x any) error {
	switch w.Name {
	case assign.Add.Name:
		return v.AssignAdd(ctx, x)
	case assign.Sub.Name:
		return v.AssignSub(ctx, x)
	}
	return v.Assign(ctx, x)
}
