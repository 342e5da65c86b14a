// Package activity says what a goroutine waits for: the compiler, an exchange between hosts, a
// save. Whoever wants to know puts an [Observer] into the context of the work:
//
//	ctx = activity.With(ctx, observer)
//
// and whoever may wait long says so:
//
//	defer activity.Begin(ctx, activity.Compile, name)()
//
// Without an observer that is a look into the context and nothing else. It does not stand on the
// path of a step.
package activity
