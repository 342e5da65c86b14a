// Package capi calls the C functions of a PJRT plugin with cgo. There is one C shim per function of
// the plugin's table, and a Go method that calls the shim and has no C types. Package pjrt is
// responsible for the lifetimes of objects; this package does not check them.
//
// The ABI is declared in abi.h and slots.h. A test compares all offsets with the official headers,
// which are not needed for a build.
package capi
