// Package collectives tests the collectives of a step with every dtype against sums, gathers and
// exchanges that Go code computes.
package collectives
