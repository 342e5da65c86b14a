package strategy

import (
	"context"

	"github.com/tpustrategy/tpustrategy/internal/engine/assign"
	"github.com/tpustrategy/tpustrategy/internal/engine/fault"
	"github.com/tpustrategy/tpustrategy/internal/engine/mode"
)

// writer writes variables for code of package eager. In an update function it writes one component
// of the variable. In a merge call it adds the write to the graph of the step.
type writer interface {
	Write(w assign.Op, v *Variable, x any) error
	ScatterRows(op ScatterOp, v *Variable, indices, updates any) error
}

// updater represents a running update function of package eager, which is called for each component
// of a variable.
type updater interface {
	writer
	// Number returns the replica whose component is updated.
	Number() int
	// Synchronize waits until the functions of all components make the same call. It runs read once
	// for each component in every process, and returns the result for this component.
	Synchronize(call string, v *Variable, read func(ctx context.Context, component int) (any, error)) (any, error)
}

// merger represents a running merge call of package eager.
type merger interface {
	writer
	// Step returns the context of the step, and an error if the merge call has returned.
	Step(op string) (*ReplicaContext, error)
}

// updater returns the update function that ctx belongs to. It returns nil if there is none, or if
// the update function belongs to another strategy.
func (v *Variable) updater(ctx context.Context) updater {
	m, _ := mode.FromContext(ctx)
	if m.Strategy != v.strategy {
		return nil
	}
	u, _ := m.Code.(updater)
	return u
}

// writer returns the writer for a ctx in an update function or a merge call of package eager. For
// any other ctx it returns nil.
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

// mergeCall returns the merge call that ctx belongs to, or nil if no step is being traced with ctx.
// It returns an error in replica code, and if the trace belongs to another strategy.
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
		return nil, &Error{Match: ErrContext, Op: "strategy: " + op, Reason: "called in a replica's code",
			Hint: "call it inside eager.MergeCall, with the context of the MergeContext"}
	case over != nil:
		return nil, over
	}
	return mc, nil
}

// requireCross returns an error if ctx belongs to replica code or to the scope of another strategy.
// A ctx that belongs to no strategy is valid.
func (s *TPUStrategy) requireCross(ctx context.Context, op string) error {
	if err := s.requireOwn(ctx, op, "the scope of the call"); err != nil {
		return err
	}
	if err := refuseStale(ctx, op); err != nil {
		return err
	}
	m, _ := mode.FromContext(ctx)
	if m.Replica {
		return &Error{Match: ErrContext, Op: "strategy: " + op, Reason: "called in a replica's code",
			Hint: "call it before or after, or inside MergeCall"}
	}
	if _, component := m.Code.(updater); component && m.Update >= 0 && s.runtime.IsMultiProcess() {
		return &Error{Match: ErrContext, Op: "strategy: " + op,
			Reason: "called in an update, where each process runs the code of its own replicas",
			Hint:   "use the methods of the UpdateContext, or call it before or after the update"}
	}
	return nil
}

// requireEager returns the errors of requireCross. While a step is traced, it returns an error with
// a hint for the user, which the parameter instead contains.
func (s *TPUStrategy) requireEager(ctx context.Context, op, instead string) error {
	if err := s.requireCross(ctx, op); err != nil {
		return err
	}
	return RefuseTracing(ctx, op, instead)
}

// requireOwn returns an error if ctx belongs to the scope of another strategy. subject is the name
// of the object in the error.
func (s *TPUStrategy) requireOwn(ctx context.Context, op, subject string) error {
	if m, ok := mode.FromContext(ctx); ok && m.Strategy != s {
		return fault.OtherStrategy(op, subject)
	}
	return nil
}
