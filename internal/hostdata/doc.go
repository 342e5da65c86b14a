// Package hostdata converts tensors between the flat Go slices of GoMLX and the bytes of the
// plugin, including dtypes and elements of less than 8 bits.
package hostdata
