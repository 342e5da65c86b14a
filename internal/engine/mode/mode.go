package mode

import "context"

// Mode is one entry of TensorFlow's stack. Without one, code runs outside every strategy.
type Mode struct {
	// Strategy is the *strategy.TPUStrategy whose code runs.
	Strategy any
	// Replica is set for the code of one replica. Update is the component that an update's function
	// runs for, or -1.
	Replica bool
	Update  int
	// Code is the replica or the update of package eager that runs, if one does.
	Code any
}

// Cross returns the mode of a strategy's code for all replicas.
func Cross(strategy any) Mode { return Mode{Strategy: strategy, Update: -1} }

type modeKey struct{}

// Of returns the mode of ctx, and whether it has one.
func Of(ctx context.Context) (Mode, bool) {
	m, ok := ctx.Value(modeKey{}).(Mode)
	return m, ok
}

// With returns a context in the mode.
func With(ctx context.Context, m Mode) context.Context { return context.WithValue(ctx, modeKey{}, m) }

type traceKey struct{}

// Trace returns the *strategy.ReplicaContext of the step that is traced, the code of a merge call of
// package eager, or nil outside of a trace.
func Trace(ctx context.Context) any { return ctx.Value(traceKey{}) }

// WithTrace returns a context with the value that [Trace] returns.
func WithTrace(ctx context.Context, of any) context.Context {
	return context.WithValue(ctx, traceKey{}, of)
}

// Place determines on which devices new variables are created.
type Place struct {
	// LogicalDevice is the logical device of each replica. Beside is the *strategy.Variable on whose
	// devices they are created, or nil.
	LogicalDevice int
	Beside        any
}

type placeKey struct{}

// PlaceOf returns the place in ctx, or logical device 0.
func PlaceOf(ctx context.Context) Place {
	p, _ := ctx.Value(placeKey{}).(Place)
	return p
}

// WithPlace returns a context with the place p.
func WithPlace(ctx context.Context, p Place) context.Context {
	return context.WithValue(ctx, placeKey{}, p)
}
