// Package number converts Go numbers to the dtype of the tensor or variable that they are combined
// with or written to, as TensorFlow converts Python numbers.
//
// A conversion that loses information is an error: a float for an integer dtype, a number out of
// range, or an integer that a float dtype cannot represent. A float is rounded to a float dtype,
// like a constant in a program.
package number
