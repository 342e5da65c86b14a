//go:build asan

package worker_test

// sanitized says that the address sanitizer ends a process that does what a signal would end, with its
// own report and exit code 1.
const sanitized = true
