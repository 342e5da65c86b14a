//go:build !race

package watchdog

// slowdown is 1 without the race detector.
const slowdown = 1
