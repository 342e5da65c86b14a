package patience

import "time"

// First is the time after which work takes long. Each wait between two calls is twice the last one.
const First = 10 * time.Second

// Watch calls say with the time that has passed: after [First], and then at growing intervals,
// until stop is called. Calls come one at a time, from another goroutine; stop waits for one that
// is under way. It is for work that cannot say how far it is.
func Watch(say func(passed time.Duration)) (stop func()) {
	done, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		start := time.Now()
		wait := First
		timer := time.NewTimer(wait)
		defer timer.Stop()
		for {
			select {
			case <-done:
				return
			case <-timer.C:
			}
			select { // of two ready cases select takes any
			case <-done:
				return
			default:
			}
			say(time.Since(start))
			wait *= 2
			timer.Reset(wait)
		}
	}()
	return func() {
		close(done)
		<-ended
	}
}
