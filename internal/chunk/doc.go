// Package chunk splits the rows of a batch over replicas as TensorFlow does.
package chunk
