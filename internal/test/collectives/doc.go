// Package collectives compares the collectives of a step, for every dtype, with reference
// implementations in Go.
package collectives
