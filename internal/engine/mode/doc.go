// Package mode stores in a context.Context whether the code of one replica runs, the code for all
// replicas, or code outside of a strategy. TensorFlow stores this in a stack for each thread.
package mode
