package heartbeat

import "time"

// FirstReport is the time from the start of an operation to the first report.
const FirstReport = 10 * time.Second

// Start calls report with the elapsed time until stop is called, first after [FirstReport]. Each
// interval between calls is twice the previous interval. The calls are sequential and run in another
// goroutine. stop waits for a running call and must be called exactly once.
func Start(report func(elapsed time.Duration)) (stop func()) {
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
