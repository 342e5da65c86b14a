// Package nesting traverses nested values, such as structs, slices and maps of tensors, for package
// strategy. It is package internal/nest with the errors of package strategy.
package nesting
