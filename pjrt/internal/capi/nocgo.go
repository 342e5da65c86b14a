//go:build !cgo

package capi

// Without this file the compiler would say no more than that no Go file is left.
var _ = plugins_need_cgo__install_a_C_compiler_and_do_not_set_CGO_ENABLED_to_0
