// Package v1 is TensorFlow's compat.v1 face of a strategy: the names and the
// defaults of tf.compat.v1.distribute, over package strategy, which does the work.
package v1
