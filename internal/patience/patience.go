package patience

import "time"

// FirstReport is the time until the first report. Each interval is twice the previous one.
const FirstReport = 10 * time.Second

// ReportProgress calls report with the elapsed time, first after [FirstReport] and then at growing
// intervals, until stop is called. Calls are sequential and run in another goroutine. stop waits
// for a running call.
func ReportProgress(report func(elapsed time.Duration)) (stop func()) {
	done, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		start := time.Now()
		wait := FirstReport
		timer := time.NewTimer(wait)
		defer timer.Stop()
		for {
			select {
			case <-done:
				return
			case <-timer.C:
			}
			select { // both channels may have been ready
			case <-done:
				return
			default:
			}
			report(time.Since(start))
			wait *= 2
			timer.Reset(wait)
		}
	}()
	return func() {
		close(done)
		<-ended
	}
}
