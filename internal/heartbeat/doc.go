// Package heartbeat reports periodically that a slow operation is still running. It is for
// operations that report no progress themselves, such as a compilation in a plugin:
//
//	stop := heartbeat.Start(func(elapsed time.Duration) { logger.Info("compiling", "elapsed", elapsed) })
//	defer stop()
package heartbeat
