// Package mode stores in a context.Context which code runs: the code of a replica, the code for all
// replicas, or neither. TensorFlow keeps this in a stack for each thread, which Go does not have.
package mode
