package eager

import (
	"context"

	"github.com/tpustrategy/tpustrategy/internal/engine/assign"
	"github.com/tpustrategy/tpustrategy/internal/engine/mode"
	"github.com/tpustrategy/tpustrategy/strategy"
)

// Scope returns a context in the strategy's cross-replica context: TensorFlow's strategy.scope. A
// call with this context is checked as TensorFlow checks calls inside the scope; most calls do not
// need a scope. Entering the scope of another strategy inside it returns
// [strategy.ErrOtherStrategy], entering it in a replica's code [strategy.ErrContext].
func (e *Extended) Scope(ctx context.Context) (context.Context, error) {
	if err := inner(e.strategy).RequireCross(ctx, "scope"); err != nil {
		return nil, err
	}
	return mode.With(ctx, mode.Cross(e.strategy)), nil
}

// FromContext returns the strategy whose scope or replica code ctx belongs to, and whether there is
// one: TensorFlow's get_strategy and has_strategy.
func FromContext(ctx context.Context) (*strategy.TPUStrategy, bool) {
	m, _ := mode.Of(ctx)
	s, ok := m.Strategy.(*strategy.TPUStrategy)
	return s, ok
}

// InCrossReplicaContext reports whether ctx belongs to code for all replicas, that is to a scope, a
// merge call or an update: TensorFlow's tf.distribute.in_cross_replica_context. Outside every
// strategy it is false.
func InCrossReplicaContext(ctx context.Context) bool {
	m, ok := mode.Of(ctx)
	return ok && !m.Replica
}

// InReplicaContext reports whether ctx belongs to one replica's code. It is true outside every
// strategy, as in TensorFlow, whose default strategy is one replica.
func InReplicaContext(ctx context.Context) bool { return !InCrossReplicaContext(ctx) }

// UpdateReplicaID returns the number of the component that an update function runs for, and whether
// ctx belongs to an update: TensorFlow's get_update_replica_id.
func UpdateReplicaID(ctx context.Context) (int, bool) {
	m, ok := mode.Of(ctx)
	if !ok || m.Update < 0 {
		return 0, false
	}
	return m.Update, true
}

// ReplicaContextOf returns the replica context that ctx belongs to, and whether it belongs to one:
// TensorFlow's tf.distribute.get_replica_context. Variables that the replica context creates are
// placed as [Extended.ColocateVarsWith] or [Extended.LogicalDevice] requested for ctx.
func ReplicaContextOf(ctx context.Context) (*ReplicaContext, bool) {
	m, _ := mode.Of(ctx)
	rc, ok := m.Code.(*ReplicaContext)
	if ok && mode.PlaceOf(ctx) != mode.PlaceOf(rc.ctx) {
		placed := *rc
		placed.ctx = ctx
		rc = &placed
	}
	return rc, ok
}

// componentCode is the code of an update's function, to which the variables' own methods turn that
// are given its context.
type componentCode struct{ rc *ReplicaContext }

func (c *componentCode) Number() int { return c.rc.replica }

func (c *componentCode) Joined(call string, v *strategy.Variable, read func(ctx context.Context, component int) (any, error)) (any, error) {
	return c.rc.join(call, v, nil, func(all []any) ([]any, error) {
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
