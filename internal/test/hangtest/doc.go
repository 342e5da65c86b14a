// Package hangtest makes a test fail if the code under test hangs. Without it, a read from a pipe that
// has no writer would wait until the whole test binary times out.
//
//	hangtest.Within(t, func() { _, err = files.Open(pipe) })
//
// The limit is 20 seconds, which is much longer than the time to read a small file on a loaded
// machine. A function that returns earlier is not delayed.
//
// [Processor] measures the processor time of a function, for tests of code that may be too slow. The
// load of other processes hardly affects this time.
package hangtest
