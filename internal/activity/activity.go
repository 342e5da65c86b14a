package activity

import "context"

// Kind is a kind of activity.
type Kind uint8

const (
	// Other is the program's own code.
	Other Kind = iota
	// Input waits for a batch, Launch launches a step, and Result waits for one.
	Input
	Launch
	Result
	// Exchange waits for the other hosts' messages.
	Exchange
	// Compile waits for the compiler.
	Compile
	// Save writes a checkpoint, and Restore reads one.
	Save
	Restore
	// Hook runs a function of the caller, and Setup opens what a run needs.
	Hook
	Setup
	// Kinds is the number of kinds.
	Kinds
)

var names = [Kinds]string{"own code", "input", "launch", "result", "exchange", "compile", "save", "restore", "hook", "setup"}

// String returns a word such as "input".
func (k Kind) String() string {
	if k >= Kinds {
		return "unknown"
	}
	return names[k]
}

// Parse returns the kind of a word; a word of none is Other.
func Parse(word string) Kind {
	for k, name := range names {
		if name == word {
			return Kind(k)
		}
	}
	return Other
}

// Together reports whether the work ends only when other hosts, too, have come to it.
func (k Kind) Together() bool { return k == Launch || k == Result || k == Exchange }

// Observer is told that an activity begins within the one under way, and end that it has ended. It is
// safe for concurrent use.
type Observer func(kind Kind, name string) (end func())

type key struct{}

// With returns a context whose work tells an observer.
func With(ctx context.Context, o Observer) context.Context { return context.WithValue(ctx, key{}, o) }

// Begin tells the context's observer, if there is one, that an activity begins.
func Begin(ctx context.Context, kind Kind, name string) (end func()) {
	if o, ok := ctx.Value(key{}).(Observer); ok {
		return o(kind, name)
	}
	return func() {}
}
