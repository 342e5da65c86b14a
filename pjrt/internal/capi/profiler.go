package capi

/*
#include <stdlib.h>
#include "shims.h"
*/
import "C"

import "unsafe"

// Profiler is a running profiler of a plugin.
type Profiler struct{ p unsafe.Pointer }

// StartProfiler creates and starts a profiler. options is an encoded tensorflow.ProfileOptions. If
// the plugin has no profiler, the error is an Error with CodeUnimplemented.
func (a *API) StartProfiler(options []byte) (Profiler, error) {
	var p Profiler
	f := C.tps_profiler_start(a.p, bytesPointer(options), C.size_t(len(options)), &p.p)
	return p, profilerError(f)
}

// StopProfiler stops the profiler and returns an encoded tensorflow.profiler.XSpace. The profiler
// is destroyed even if StopProfiler fails.
func (a *API) StopProfiler(p Profiler) ([]byte, error) {
	defer C.tps_profiler_destroy(a.p, p.p)
	var data C.tps_list
	if err := profilerError(C.tps_profiler_stop(a.p, p.p, &data)); err != nil {
		return nil, err
	}
	return append([]byte(nil), unsafe.Slice((*byte)(data.p), data.n)...), nil
}

func profilerError(f C.tps_fault) error {
	if f.code == 0 {
		return nil
	}
	defer C.free(unsafe.Pointer(f.text))
	if f.text == nil && f.code == CodeUnimplemented {
		return &Error{Code: CodeUnimplemented, Msg: "the plugin has no profiler"}
	}
	return &Error{Code: int(f.code), Msg: C.GoStringN(f.text, C.int(f.n))}
}
