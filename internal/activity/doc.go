// Package activity reports what a goroutine waits for, such as the compiler, other hosts, or a
// checkpoint. To receive the reports, add an [Observer] to the context:
//
//	ctx = activity.WithObserver(ctx, observer)
//
// Functions that may take long report their activity:
//
//	defer activity.Begin(ctx, activity.Compile, name)()
//
// Without an observer, Begin costs one context lookup. It is not called in each training step.
package activity
