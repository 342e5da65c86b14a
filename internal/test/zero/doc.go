// Package zero tests zero values and nil pointers of the module's public types.
package zero
