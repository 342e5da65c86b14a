//go:build !asan

package worker_test

const sanitized = false
