// Package errkind classifies errors by the exception that TensorFlow raises for the same mistake.
// Every error type of this module has a method Kind, and [KindOf] returns the kind of a wrapped
// error. [Fault] is the common error type of the module, and [Format] formats its text.
//
// The package imports no other package of the module.
package errkind
