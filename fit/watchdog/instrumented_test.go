//go:build race

package watchdog

// slowdown is the factor by which the race detector slows down a step.
const slowdown = 20
