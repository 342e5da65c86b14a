package activity

import "context"

// Kind is a kind of activity.
type Kind uint8

const (
	// Other is code of the program.
	Other Kind = iota
	// Input waits for a batch, Launch launches a step, and Result waits for its result.
	Input
	Launch
	Result
	// Exchange waits for messages of other hosts.
	Exchange
	// Compile waits for the compiler.
	Compile
	// Save writes a checkpoint, and Restore reads one.
	Save
	Restore
	// Hook runs a callback of the user, and Setup prepares a run.
	Hook
	Setup
	// NumKinds is the number of kinds.
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

// ParseKind returns the kind with a name, or Other if there is none.
func ParseKind(s string) Kind {
	for k, name := range kindNames {
		if name == s {
			return Kind(k)
		}
	}
	return Other
}

// WaitsForHosts reports whether the activity completes only if other hosts perform it, too.
func (k Kind) WaitsForHosts() bool { return k == Launch || k == Result || k == Exchange }

// Observer is called at the start of an activity, which may be nested. It returns a function that
// is called at the end. Observers must be safe for concurrent use.
type Observer func(kind Kind, name string) (end func())

type observerKey struct{}

// WithObserver returns a context whose activities are reported to o.
func WithObserver(ctx context.Context, o Observer) context.Context {
	return context.WithValue(ctx, observerKey{}, o)
}

// Begin reports the start of an activity to the observer of the context, if there is one.
func Begin(ctx context.Context, kind Kind, name string) (end func()) {
	if o, ok := ctx.Value(observerKey{}).(Observer); ok {
		return o(kind, name)
	}
	return func() {}
}
