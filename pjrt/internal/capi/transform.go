package capi

/*
#include "shims.h"
*/
import "C"

import "unsafe"

// ApplyTransform is the kind of the request to apply a compiler pass that is written in Go. The
// value of the request is a program. The reply is the new program, or empty to keep the program.
const ApplyTransform = int(C.TPS_TRANSFORM)

// Transform is a compiler pass that is registered with the plugin.
type Transform struct {
	number C.int
	name   string
	stage  int
}

// RegisterTransform makes the plugin send the program of each later compilation to requests. If the
// plugin does not support transforms, the error is an Error with CodeUnimplemented.
func (a *API) RegisterTransform(name string, stage int, requests RequestPipe) (Transform, error) {
	var e unsafe.Pointer
	number := C.tps_transform_register(a.p, (*C.char)(unsafe.Pointer(unsafe.StringData(name))), C.size_t(len(name)),
		C.int(stage), requests.p, &e)
	switch number {
	case C.TPS_TRANSFORM_MISSING:
		return Transform{}, &Error{Code: CodeUnimplemented, Msg: "the plugin does not support transforms"}
	case C.TPS_TRANSFORM_FULL:
		return Transform{}, &Error{Code: CodeResourceExhausted,
			Msg: "64 transforms are registered, which is the limit; close one"}
	case C.TPS_TRANSFORM_FAILED:
		return Transform{}, a.goError(e)
	}
	return Transform{number, name, stage}, nil
}

// UnregisterTransform removes a transform. Later compilations do not use it.
func (a *API) UnregisterTransform(t Transform) error {
	return a.goError(C.tps_transform_clear(a.p, (*C.char)(unsafe.Pointer(unsafe.StringData(t.name))),
		C.size_t(len(t.name)), C.int(t.stage), t.number))
}
