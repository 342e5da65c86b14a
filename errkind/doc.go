// Package errkind says of what class an error is: the exception that TensorFlow raises
// for the same mistake. Every error type of this module answers it by a method Kind, and
// [Of] finds the answer at any depth of an error.
//
// The package imports nothing of the module, so that every other one can use it.
package errkind
