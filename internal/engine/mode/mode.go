package mode

import "context"

// Mode describes the code that runs within a strategy. It corresponds to an entry of TensorFlow's
// stack of distribution contexts. A context without a Mode belongs to code outside of every
// strategy.
type Mode struct {
	// Strategy is the *strategy.TPUStrategy whose code runs.
	Strategy any
	// Replica is true in the code of one replica. It is false in the code for all replicas.
	Replica bool
	// Update is the index of the component that an update function writes, or -1 in any other code.
	Update int
	// Code is the replica or the update of package eager whose function runs, or nil.
	Code any
}

// Cross returns the Mode of code that runs once for all replicas of a strategy. TensorFlow calls
// such code the cross-replica context.
func Cross(strategy any) Mode { return Mode{Strategy: strategy, Update: -1} }

type modeKey struct{}

// FromContext returns the Mode that is stored in ctx. It returns false if ctx belongs to code
// outside of every strategy.
func FromContext(ctx context.Context) (Mode, bool) {
	m, ok := ctx.Value(modeKey{}).(Mode)
	return m, ok
}

// With returns a copy of ctx that contains the mode m.
func With(ctx context.Context, m Mode) context.Context { return context.WithValue(ctx, modeKey{}, m) }

type traceKey struct{}

// Trace returns the *strategy.ReplicaContext of the step that is being traced. During a merge call
// of package eager it returns the value that the call stored. Otherwise it returns nil.
func Trace(ctx context.Context) any { return ctx.Value(traceKey{}) }

// WithTrace returns a copy of ctx for which [Trace] returns x.
func WithTrace(ctx context.Context, x any) context.Context {
	return context.WithValue(ctx, traceKey{}, x)
}

// Place determines on which devices new variables are created.
type Place struct {
	// LogicalDevice is the index of the device within each replica.
	LogicalDevice int
	// Beside is the *strategy.Variable on whose devices new variables are created, or nil.
	Beside any
}

type placeKey struct{}

// PlaceFromContext returns the place that is stored in ctx. The default is logical device 0.
func PlaceFromContext(ctx context.Context) Place {
	p, _ := ctx.Value(placeKey{}).(Place)
	return p
}

// WithPlace returns a copy of ctx that contains the place p.
func WithPlace(ctx context.Context, p Place) context.Context {
	return context.WithValue(ctx, placeKey{}, p)
}
