//go:build race || asan

package pjrt_test

// instrumented reports whether a detector is active, which allocates memory of its own.
const instrumented = true
