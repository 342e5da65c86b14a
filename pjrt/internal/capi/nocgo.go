//go:build !cgo

package capi

// This declaration makes the compiler print a useful message when cgo is disabled.
var _ = plugins_need_cgo__install_a_C_compiler_and_do_not_set_CGO_ENABLED_to_0
