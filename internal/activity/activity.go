package activity

import "context"

// Kind classifies an activity.
type Kind uint8

const (
	// Other is time in the program's own code.
	Other Kind = iota
	// Input waits for a batch. Launch launches a training step. Result waits for the result of a step.
	Input
	Launch
	Result
	// Exchange waits for messages from other hosts.
	Exchange
	// Compile waits for the compiler.
	Compile
	// Save writes a checkpoint. Restore reads a checkpoint.
	Save
	Restore
	// Hook runs a user callback. Setup prepares a training run.
	Hook
	Setup
	// NumKinds is the number of constants of type Kind.
	NumKinds
)

var kindNames = [NumKinds]string{"own code", "input", "launch", "result", "exchange", "compile", "save", "restore",
	"hook",
	"setup"}

// String returns the name of the kind, such as "input".
func (k Kind) String() string {
	if k >= NumKinds {
		return "unknown"
	}
	return kindNames[k]
}

// ParseKind returns the kind with the given name, or Other if there is none.
func ParseKind(s string) Kind {
	for k, name := range kindNames {
		if name == s {
			return Kind(k)
		}
	}
	return Other
}

// WaitsForHosts reports whether an activity of this kind completes only after the other hosts have
// started the same activity.
func (k Kind) WaitsForHosts() bool { return k == Launch || k == Result || k == Exchange }

// Observer is called at the start of an activity and returns a function that is called at the end.
// Activities may be nested. Observers must be safe for concurrent use.
type Observer func(kind Kind, name string) (end func())

type observerKey struct{}

// WithObserver returns a context that passes activities to o.
func WithObserver(ctx context.Context, o Observer) context.Context {
	return context.WithValue(ctx, observerKey{}, o)
}

// Begin reports the start of an activity to the observer of ctx, if any. The caller must call the
// returned function at the end of the activity.
func Begin(ctx context.Context, kind Kind, name string) (end func()) {
	if o, ok := ctx.Value(observerKey{}).(Observer); ok {
		return o(kind, name)
	}
	return func() {}
}
