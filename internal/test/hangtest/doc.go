// Package hangtest lets a test fail where the code under test would hang: a read of a pipe whose
// other end nobody opens would otherwise wait until the whole test binary times out.
//
//	hangtest.Within(t, func() { _, err = files.Open(pipe) })
//
// The limit is 20 seconds, which is long for a function that reads a small file, however loaded the
// machine is. A function that returns is not slowed down.
//
// A function that would come back after far too long is held to the processor's time: [Processor]
// counts what the process itself took, where a clock counts what other processes took too.
package hangtest
