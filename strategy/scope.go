package strategy

import (
	"context"

	"github.com/tpustrategy/tpustrategy/internal/engine/assign"
	"github.com/tpustrategy/tpustrategy/internal/engine/fault"
	"github.com/tpustrategy/tpustrategy/internal/engine/mode"
)

// writer handles the writes of a variable in code of package eager. An update function writes one
// component; a merge call adds the write to the graph of its step.
type writer interface {
	Write(w assign.Op, v *Variable, x any) error
	ScatterRows(op ScatterOp, v *Variable, indices, updates any) error
}

// updater is the function of an update, which package eager calls for each component.
type updater interface {
	writer
	// Number returns the replica whose component is updated.
	Number() int
	// Synchronize waits until the functions of all components make the same call. It runs read once
	// for each component in every process, and returns the result for this component.
	Synchronize(call string, v *Variable, read func(ctx context.Context, component int) (any, error)) (any, error)
}

// merger is a merge call of package eager.
type merger interface {
	writer
	// Step returns the context of the step, and an error if the merge call has returned.
	Step(op string) (*ReplicaContext, error)
}

// updater returns the update of the variable's strategy that ctx belongs to, or nil.
func (v *Variable) updater(ctx context.Context) updater {
	m, _ := mode.FromContext(ctx)
	if m.Strategy != v.strategy {
		return nil
	}
	u, _ := m.Code.(updater)
	return u
}

// writer returns the object that handles writes of the variable in code of package eager, or nil
// for other code.
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

// mergeCall returns the merge call that ctx belongs to, or nil if ctx does not belong to a trace.
// It returns an error in replica code and for the trace of another strategy.
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

// requireCross returns an error in replica code and in the scope of another strategy. A context
// without a strategy is valid.
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

// requireEager returns the errors of requireCross, and an error with the hint instead while a step
// is traced.
func (s *TPUStrategy) requireEager(ctx context.Context, op, instead string) error {
	if err := s.requireCross(ctx, op); err != nil {
		return err
	}
	return RefuseTracing(ctx, op, instead)
}

// requireOwn returns an error in the scope of another strategy. subject names the object in the
// error.
func (s *TPUStrategy) requireOwn(ctx context.Context, op, subject string) error {
	if m, ok := mode.FromContext(ctx); ok && m.Strategy != s {
		return fault.OtherStrategy(op, subject)
	}
	return nil
}
