// Package hostdata moves tensors between the flat Go slices of GoMLX and the bytes that the plugin takes:
// which dtype is which, and elements of less than a byte.
package hostdata
