// Package chunk computes which rows of a batch belong to each replica, by TensorFlow's rule.
package chunk
