// Package savedstep describes a compiled step by plain values. Package strategy converts a compiled
// step to these values and back, and package strategy/stepfile writes and reads them.
package savedstep
