// Package errkind says of what class an error is: the exception that TensorFlow raises for the same
// mistake. Every error type of this module tells its class by a method Kind, and [Of] finds it at
// any depth of an error. [Fault] is the one shape of the module's errors, and [Text] writes their
// text.
//
// The package imports nothing of the module, so that every other package can use it.
package errkind
