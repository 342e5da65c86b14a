// Package number converts Go numbers to the dtype of the tensor or variable that they are used
// with.
//
// A Go number that is combined with a tensor or written to a scalar variable is converted to its
// dtype, as Python numbers are in TensorFlow. A conversion that loses information is an error: a
// float for an integer dtype, a number out of range, or an integer that a float dtype cannot
// represent. A float is rounded to a float dtype, like a constant in a program.
package number
