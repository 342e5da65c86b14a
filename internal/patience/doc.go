// Package patience informs users that slow work is still running.
//
// [ReportProgress] is for work without progress reports, such as a compilation in a plugin:
//
//	stop := patience.ReportProgress(func(elapsed time.Duration) { logger.Info("compiling", "for", elapsed) })
//	defer stop()
//
// The first report follows after 10 seconds, and each interval is twice the previous one. Work of
// an hour is reported eight times.
package patience
