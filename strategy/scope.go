package strategy

import (
	"context"

	"github.com/tpustrategy/tpustrategy/strategy/internal/assign"
)

// Go has no stack of strategies for each thread. What TensorFlow keeps there, a context.Context
// carries here: which strategy's code runs, and whether it is the code of one replica or of all.

type modeKey struct{}

// mode is one entry of TensorFlow's stack. Without one, code runs outside every strategy.
type mode struct {
	strategy *TPUStrategy
	// replica is set in a replica context. update is the component that an update function runs for,
	// or -1.
	replica bool
	update  int
	// code is that of package eager which runs, if any: a [component] in an update's function.
	code any
}

// component is the code of an update's function, which acts on one component of a variable.
type component interface {
	// Number returns the replica whose component it is.
	Number() int
	// Write writes the component.
	Write(w assign.Op, v *Variable, x any) error
	// ScatterRows combines rows of the component.
	ScatterRows(op ScatterOp, v *Variable, indices, updates any) error
}

func modeOf(ctx context.Context) (mode, bool) {
	m, ok := ctx.Value(modeKey{}).(mode)
	return m, ok
}

func withMode(ctx context.Context, m mode) context.Context {
	return context.WithValue(ctx, modeKey{}, m)
}

// Scope returns a context in the strategy's cross-replica context: TensorFlow's strategy.scope. A
// call with this context is checked as TensorFlow checks calls inside the scope; most calls do not
// need a scope. Entering the scope of another strategy inside it returns a [*StrategyError],
// entering it in a replica's code a [*ContextError].
func (s *TPUStrategy) Scope(ctx context.Context) (context.Context, error) {
	if err := s.requireCross(ctx, "scope"); err != nil {
		return nil, err
	}
	return withMode(ctx, mode{strategy: s, update: -1}), nil
}

// FromContext returns the strategy whose scope or replica code ctx belongs to, and whether there is
// one: TensorFlow's get_strategy and has_strategy.
func FromContext(ctx context.Context) (*TPUStrategy, bool) {
	m, ok := modeOf(ctx)
	return m.strategy, ok
}

// InCrossReplicaContext reports whether ctx belongs to code for all replicas, that is to a scope, a
// merge call or an update: TensorFlow's tf.distribute.in_cross_replica_context. Outside every
// strategy it is false.
func InCrossReplicaContext(ctx context.Context) bool {
	m, ok := modeOf(ctx)
	return ok && !m.replica
}

// InReplicaContext reports whether ctx belongs to one replica's code. It is true outside every
// strategy, as in TensorFlow, whose default strategy is one replica.
func InReplicaContext(ctx context.Context) bool { return !InCrossReplicaContext(ctx) }

// UpdateReplicaID returns the number of the component that an update function runs for, and whether
// ctx belongs to an update: TensorFlow's get_update_replica_id.
func UpdateReplicaID(ctx context.Context) (int, bool) {
	m, ok := modeOf(ctx)
	if !ok || m.update < 0 {
		return 0, false
	}
	return m.update, true
}

// requireCross refuses a replica's code and other strategies' scopes. Outside every strategy is
// accepted.
func (s *TPUStrategy) requireCross(ctx context.Context, op string) error {
	m, ok := modeOf(ctx)
	switch {
	case !ok:
		return nil
	case m.strategy != s:
		return &StrategyError{Op: op, Subject: "the scope of the call"}
	case m.replica:
		return &ContextError{Op: op, Reason: "called in a replica's code", Hint: "call it before or after, or inside MergeCall"}
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
	if m, ok := modeOf(ctx); ok && m.strategy != s {
		return &StrategyError{Op: op, Subject: subject}
	}
	return nil
}
