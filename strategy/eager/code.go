package eager

import (
	"context"

	"github.com/tpustrategy/tpustrategy/internal/engine"
	"github.com/tpustrategy/tpustrategy/internal/engine/assign"
	"github.com/tpustrategy/tpustrategy/internal/engine/mode"
	"github.com/tpustrategy/tpustrategy/strategy"
)

// Scope returns a context that belongs to the strategy's scope, for cross-replica code, like
// TensorFlow's strategy.scope. Most calls do not need a scope. Scope returns
// [strategy.ErrOtherStrategy] inside the scope of another strategy and [strategy.ErrContext] in
// replica code.
func (e *Extended) Scope(ctx context.Context) (context.Context, error) {
	if err := engine.Internal(e.strategy).CheckCrossReplica(ctx, "scope"); err != nil {
		return nil, err
	}
	return mode.With(ctx, mode.Cross(e.strategy)), nil
}

// FromContext returns the strategy to whose scope or replica code ctx belongs, and reports whether
// there is one. It corresponds to TensorFlow's get_strategy and has_strategy.
func FromContext(ctx context.Context) (*strategy.TPUStrategy, bool) {
	m, _ := mode.FromContext(ctx)
	s, ok := m.Strategy.(*strategy.TPUStrategy)
	return s, ok
}

// InCrossReplicaContext reports whether ctx belongs to cross-replica code: a scope, a merge call or
// an update. It corresponds to TensorFlow's in_cross_replica_context, but returns false outside of
// all strategies.
func InCrossReplicaContext(ctx context.Context) bool {
	m, ok := mode.FromContext(ctx)
	return ok && !m.Replica
}

// InReplicaContext reports whether ctx is outside of cross-replica code. Like TensorFlow, whose
// default strategy has one replica, it returns true outside of all strategies.
func InReplicaContext(ctx context.Context) bool { return !InCrossReplicaContext(ctx) }

// UpdateReplicaID returns the index of the component that the running update function changes, and
// reports whether ctx belongs to an update function. It corresponds to TensorFlow's
// get_update_replica_id.
func UpdateReplicaID(ctx context.Context) (int, bool) {
	m, ok := mode.FromContext(ctx)
	if !ok || m.Update < 0 {
		return 0, false
	}
	return m.Update, true
}

// ReplicaContextOf returns the replica context to which ctx belongs, and reports whether there is
// one. It corresponds to TensorFlow's get_replica_context. The replica context creates variables on
// the devices that [Extended.ColocateVarsWith] or [Extended.LogicalDevice] specified for ctx.
func ReplicaContextOf(ctx context.Context) (*ReplicaContext, bool) {
	m, _ := mode.FromContext(ctx)
	rc, ok := m.Code.(*ReplicaContext)
	if ok && mode.PlaceFromContext(ctx) != mode.PlaceFromContext(rc.ctx) {
		placed := *rc
		placed.ctx = ctx
		rc = &placed
	}
	return rc, ok
}

// componentCode handles reads and writes of variables inside an update function, so that they only
// affect one component.
type componentCode struct{ rc *ReplicaContext }

func (c *componentCode) Number() int { return c.rc.replica }

func (c *componentCode) Synchronize(call string, v *strategy.Variable, read func(ctx context.Context,
	component int) (any, error)) (any, error) {
	return c.rc.callCollective(call, v, nil, func(all []any) ([]any, error) {
		results := make([]any, len(all))
		for r := range results {
			outer := mode.With(c.rc.ctx, mode.Mode{Strategy: c.rc.strategy, Update: r})
			var err error
			if results[r], err = read(outer, r); err != nil {
				return nil, err
			}
		}
		return results, nil
	})
}

func (c *componentCode) Write(w assign.Op, v *strategy.Variable, x any) error {
	_, err := c.rc.write(w, v, x)
	return err
}

func (c *componentCode) ScatterRows(op strategy.ScatterOp, v *strategy.Variable, indices, updates any) error {
	_, err := c.rc.Scatter(op, v, indices, updates)
	return err
}
