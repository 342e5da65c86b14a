package strategy

import (
	"context"

	"github.com/tpustrategy/tpustrategy/internal/engine/assign"
	"github.com/tpustrategy/tpustrategy/internal/engine/fault"
	"github.com/tpustrategy/tpustrategy/internal/engine/mode"
)

// writer is code of package eager that a variable's writes go to, with its context: an update's
// function acts on one component, a merge call builds the graph of its step.
type writer interface {
	// Write writes the variable.
	Write(w assign.Op, v *Variable, x any) error
	// ScatterRows combines rows of the variable.
	ScatterRows(op ScatterOp, v *Variable, indices, updates any) error
}

// updater is an update's function.
type updater interface {
	writer
	// Number returns the replica whose component it is.
	Number() int
	// Joined joins the components' functions in a call, which runs read once for each component in
	// every process, and returns the result for this one.
	Joined(call string, v *Variable, read func(ctx context.Context, component int) (any, error)) (any, error)
}

// merger is a merge call.
type merger interface {
	writer
	// Step returns the step's context, and an error if the call is over.
	Step(op string) (*ReplicaContext, error)
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

// writer returns the code that a write of the variable goes to, or nil.
func (v *Variable) writer(ctx context.Context, op string) (writer, error) {
	mc, err := v.strategy.mergeCall(ctx, op)
	if err != nil {
		return nil, err
	}
	if u := v.updater(ctx); u != nil {
		return u, nil
	}
	return mc, nil
}

// mergeCall returns the merge call that ctx belongs to, if it belongs to one: the call is to build
// graph.
func (s *TPUStrategy) mergeCall(ctx context.Context, op string) (merger, error) {
	trace := mode.Trace(ctx)
	mc, merging := trace.(merger)
	rc, _ := trace.(*ReplicaContext)
	var over error
	if merging {
		rc, over = mc.Step(op)
	}
	switch {
	case rc == nil:
		return nil, nil
	case rc.strategy != s:
		return nil, fault.OtherStrategy(op, "the step that is being traced")
	case !merging:
		return nil, &Error{Match: ErrContext, Op: "strategy: " + op, Reason: "called in a replica's code", Hint: "call it inside eager.MergeCall, with the context of the MergeContext"}
	case over != nil:
		return nil, over
	}
	return mc, nil
}

// requireCross refuses a replica's code and other strategies' scopes. Outside every strategy is
// accepted.
func (s *TPUStrategy) requireCross(ctx context.Context, op string) error {
	if err := s.requireOwn(ctx, op, "the scope of the call"); err != nil {
		return err
	}
	m, _ := mode.Of(ctx)
	if m.Replica {
		return &Error{Match: ErrContext, Op: "strategy: " + op, Reason: "called in a replica's code", Hint: "call it before or after, or inside MergeCall"}
	}
	if _, component := m.Code.(updater); component && m.Update >= 0 && s.machine.Several() {
		return &Error{Match: ErrContext, Op: "strategy: " + op, Reason: "called in an update, where each process runs the code of its own replicas",
			Hint: "use the methods of the UpdateContext, or call it before or after the update"}
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
	if m, ok := mode.Of(ctx); ok && m.Strategy != s {
		return fault.OtherStrategy(op, subject)
	}
	return nil
}
