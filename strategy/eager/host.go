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

// operand combines the leaves of all replicas into one value. When UpdateNonSlot runs a function on
// the host, operand returns an error for a leaf that differs between replicas.
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

// tracedOperand is the counterpart of operand in a merge call of a compiled step.
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

// newVaryingError reports that a function on the host uses an operand that differs between
// replicas.
func newVaryingError(call string, i int, x any) error {
	return fault.New(errkind.ValueError, call, "reduce it first, or take one replica's part with Extended.LocalResultsOf",
		"operand %d, %s, has a value for each replica, and none on the host where a non-slot update runs", i, x)
}

// mirroredComponents wraps the results of a compiled function that are equal on all replicas as
// components.
func (rc *ReplicaContext) mirroredComponents(results []any) []any {
	for i, x := range results {
		if v, ok := x.(strategy.Value); ok && !isVarying(v) {
			results[i] = Component{value: v}
		}
	}
	return results
}

// writeAllComponents calls write, which must write all components of a variable, and returns the
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

// assignAllComponents calls the variable's Assign, AssignAdd or AssignSub.
func assignAllComponents(ctx context.Context, w assign.Op, v *strategy.Variable, x any) error {
	switch w.Name {
	case assign.Add.Name:
		return v.AssignAdd(ctx, x)
	case assign.Sub.Name:
		return v.AssignSub(ctx, x)
	}
	return v.Assign(ctx, x)
}
