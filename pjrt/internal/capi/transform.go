package capi

/*
#include "shims.h"
*/
import "C"

import "unsafe"

// Rewrite is the kind of a transform's question. Its value is a program, and the answer is another one
// or, to leave it, empty.
const Rewrite = int(C.TPS_TRANSFORM)

// Transform is one that a plugin has taken.
type Transform struct {
	number C.int
	name   string
	stage  int
}

// RegisterTransform has a plugin ask a store about the program of each compilation. A plugin without
// transforms is an Error with CodeUnimplemented.
func (a *API) RegisterTransform(name string, stage int, s Store) (Transform, error) {
	var e unsafe.Pointer
	number := C.tps_transform_register(a.p, (*C.char)(unsafe.Pointer(unsafe.StringData(name))), C.size_t(len(name)), C.int(stage), s.p, &e)
	switch number {
	case C.TPS_TRANSFORM_MISSING:
		return Transform{}, &Error{Code: CodeUnimplemented, Msg: "the plugin takes no transforms of programs"}
	case C.TPS_TRANSFORM_FULL:
		return Transform{}, &Error{Code: CodeResourceExhausted, Msg: "64 transforms are registered: close one"}
	case C.TPS_TRANSFORM_FAILED:
		return Transform{}, a.err(e)
	}
	return Transform{number, name, stage}, nil
}

// ClearTransform ends it: compilations that begin later do not ask.
func (a *API) ClearTransform(t Transform) error {
	return a.err(C.tps_transform_clear(a.p, (*C.char)(unsafe.Pointer(unsafe.StringData(t.name))), C.size_t(len(t.name)), C.int(t.stage), t.number))
}
