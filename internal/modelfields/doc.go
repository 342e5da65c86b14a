// Package modelfields reads private fields of GoMLX's package model. A test of this package fails if a
// version of GoMLX has renamed a field.
package modelfields
