//go:build !race && !asan

package pjrt_test

const instrumented = false
