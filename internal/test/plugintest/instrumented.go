//go:build race || asan

package plugintest

// Instrumented reports whether the race detector or the address sanitizer is active. They allocate
// memory, so tests that measure memory cannot expect the usual numbers.
const Instrumented = true
