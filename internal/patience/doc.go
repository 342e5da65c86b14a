// Package patience tells a user that work which takes long still goes on.
//
// [Watch] is for work that cannot say how far it is, such as a compilation in a plugin:
//
//	stop := patience.Watch(func(passed time.Duration) { logger.Info("compiling", "for", passed) })
//	defer stop()
//
// The first call comes after 10 seconds, and each wait after that is twice the last one: work that
// is quick says nothing, and work of an hour says so eight times.
package patience
