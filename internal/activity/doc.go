// Package activity reports what a goroutine waits for, such as the compiler, other hosts, or a
// checkpoint. To receive the reports, add an [Observer] to the context of the work:
//
//	ctx = activity.WithObserver(ctx, observer)
//
// Functions that can take long report their activity:
//
//	defer activity.Begin(ctx, activity.Compile, name)()
//
// Without an observer, Begin costs a lookup in the context. It is not called in each step.
package activity
