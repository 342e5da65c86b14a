//go:build race || asan

package pjrt_test

// instrumented: the detector itself takes memory as a program runs.
const instrumented = true
