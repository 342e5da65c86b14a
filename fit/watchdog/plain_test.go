//go:build !race

package watchdog

// slowdown is that of tests as they are.
const slowdown = 1
