package strategy

import (
	"context"

	"github.com/tpustrategy/tpustrategy/strategy/internal/assign"
	"github.com/tpustrategy/tpustrategy/strategy/internal/fault"
	"github.com/tpustrategy/tpustrategy/strategy/internal/mode"
)

// updater is the code of an update's function in package eager, which acts on one component of a
// variable.
type updater interface {
	// Number returns the replica whose component it is.
	Number() int
	// Write writes the component.
	Write(w assign.Op, v *Variable, x any) error
	// ScatterRows combines rows of the component.
	ScatterRows(op ScatterOp, v *Variable, indices, updates any) error
}

// updater returns the update of the variable's strategy that ctx belongs to, or nil.
func (v *Variable) updater(ctx context.Context) updater {
	m, _ := mode.Of(ctx)
	if m.Strategy != v.strategy {
		return nil
	}
	u, _ := m.Code.(updater)
	return u
}

// Scope returns a context in the strategy's cross-replica context: TensorFlow's strategy.scope. A
// call with this context is checked as TensorFlow checks calls inside the scope; most calls do not
// need a scope. Entering the scope of another strategy inside it returns [ErrOtherStrategy],
// entering it in a replica's code [ErrContext].
func (s *TPUStrategy) Scope(ctx context.Context) (context.Context, error) {
	if err := s.requireCross(ctx, "scope"); err != nil {
		return nil, err
	}
	return mode.With(ctx, mode.Cross(s)), nil
}

// FromContext returns the strategy whose scope or replica code ctx belongs to, and whether there is
// one: TensorFlow's get_strategy and has_strategy.
func FromContext(ctx context.Context) (*TPUStrategy, bool) {
	m, _ := mode.Of(ctx)
	s, ok := m.Strategy.(*TPUStrategy)
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

// requireCross refuses a replica's code and other strategies' scopes. Outside every strategy is
// accepted.
func (s *TPUStrategy) requireCross(ctx context.Context, op string) error {
	if err := s.requireOwn(ctx, op, "the scope of the call"); err != nil {
		return err
	}
	if m, _ := mode.Of(ctx); m.Replica {
		return &Error{Match: ErrContext, Op: "strategy: " + op, Reason: "called in a replica's code", Hint: "call it before or after, or inside MergeCall"}
	}
	return nil
}

// requireEager is requireCross for what acts at once: it refuses a step that is traced too, and
// says what to write instead.
func (s *TPUStrategy) requireEager(ctx context.Context, op, instead string) error {
	if err := s.requireCross(ctx, op); err != nil {
		return err
	}
	return RefuseTracing(ctx, op, instead)
}

// requireOwn refuses the scopes of other strategies, for what belongs in every context of its own.
func (s *TPUStrategy) requireOwn(ctx context.Context, op, subject string) error {
	if of, ok := FromContext(ctx); ok && of != s {
		return fault.OtherStrategy(op, subject)
	}
	return nil
}
