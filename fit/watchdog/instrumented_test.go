//go:build race

package watchdog

// slowdown is what the race detector makes of a step's time.
const slowdown = 20
