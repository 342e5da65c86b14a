// Package contrib is the DistributionStrategy of TensorFlow 1.9, with its towers,
// over package strategy, which does the work.
package contrib
