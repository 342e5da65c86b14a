package strategy

import "context"

// A step's code runs once for each signature, while it is traced. What it is to do in each run has
// to be built into its graph: a call that acts at once would act once, and not in each run. So the
// contexts of a trace carry it, and every call with a context either builds graph there or
// refuses.

type tracingKey struct{}

// withTracing returns ctx as a context of the trace: of its *ReplicaContext, or of a *MergeContext.
func withTracing(ctx context.Context, trace any) context.Context {
	return context.WithValue(ctx, tracingKey{}, trace)
}

// Tracing reports whether ctx belongs to a compiled step that is being traced: whether it is the
// context of [ReplicaContext.Context] or [MergeContext.Context], or derived from it. Calls that act
// at once, rather than in each run of the step, refuse such a context with [ErrContext].
func Tracing(ctx context.Context) bool { return ctx.Value(tracingKey{}) != nil }

// RefuseTracing returns [ErrContext] if ctx belongs to a compiled step that is being traced.
// Calls that act at once begin with it; instead says what to write in a step.
func RefuseTracing(ctx context.Context, op, instead string) error {
	if !Tracing(ctx) {
		return nil
	}
	return &Error{Match: ErrContext, Op: "strategy: " + op, Reason: "called in a compiled step, whose code runs once, while it is traced, and not in each run", Hint: instead}
}
