//go:build asan

package worker_test

// sanitized is true if the address sanitizer is active, which exits with code 1 instead of a
// signal.
const sanitized = true
