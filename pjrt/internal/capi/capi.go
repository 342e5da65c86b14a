package capi

/*
#cgo LDFLAGS: -ldl
#cgo CFLAGS: -Wall -Wextra -Wno-missing-field-initializers
#include <stdlib.h>
#include "shims.h"

// The calls of a step and of its transfers, whose results stay on Go's stack.
#cgo noescape tps_buffer_destroy
#cgo nocallback tps_buffer_destroy
#cgo noescape tps_buffer_is_deleted
#cgo nocallback tps_buffer_is_deleted
#cgo noescape tps_event_finish
#cgo nocallback tps_event_finish
#cgo noescape tps_buffer_poll
#cgo nocallback tps_buffer_poll
#cgo noescape tps_buffer_to_host
#cgo nocallback tps_buffer_to_host
#cgo noescape tps_client_buffer
#cgo nocallback tps_client_buffer
#cgo noescape tps_event_destroy
#cgo nocallback tps_event_destroy
#cgo noescape tps_event_notify
#cgo nocallback tps_event_notify
*/
import "C"

import (
	"fmt"
	"runtime"
	"unsafe"

	"github.com/tpustrategy/tpustrategy/errkind"
)

// The handle types, such as Client and Buffer, are addresses of objects of the plugin. Go code must
// not dereference them.

type (
	Client      unsafe.Pointer
	Device      unsafe.Pointer
	Description unsafe.Pointer
	Memory      unsafe.Pointer
	Executable  unsafe.Pointer
	Loaded      unsafe.Pointer
	Buffer      unsafe.Pointer
	Event       unsafe.Pointer
	Topology    unsafe.Pointer
)

// API is the function table of a loaded plugin. It is valid until the process exits. Methods
// without a comment call the PJRT function of the same name and return its result.
type API struct {
	p *C.tps_Api
	// Path is the path of the library.
	Path string
	// Major and Minor are the API version of the plugin.
	Major, Minor int
}

// MinMinor is the oldest supported API minor version. Version 0.57 fixed the order of the function
// table.
const MinMinor = 57

// Error is an error that the plugin returned, or the error for a function that the plugin does not
// implement. Code is a PJRT error code, and Msg the plugin's message. For a missing function,
// Function is its name, and RequiredMinor is the API minor version that introduced the function.
type Error struct {
	Code          int
	Msg           string
	Function      string
	RequiredMinor int
}

// Error returns the plugin's message or the name of the missing function.
func (e *Error) Error() string {
	if e.Function != "" {
		return fmt.Sprintf("PJRT_%s: not in this plugin, needs PJRT 0.%d", e.Function, e.RequiredMinor)
	}
	return e.Msg
}

// Kind returns InternalError. Package pjrt determines the kind from the code.
func (*Error) Kind() errkind.Kind { return errkind.InternalError }

// These are the error codes that this package generates.
const (
	CodeResourceExhausted = 8
	CodeUnimplemented     = 12
)

// goError converts the C error that a shim returned to a Go error, and destroys the C error.
func (a *API) goError(e unsafe.Pointer) error {
	if e == nil {
		return nil
	}
	return a.newError(e)
}

func (a *API) newError(e unsafe.Pointer) error {
	if n := uintptr(e); n&1 == 1 {
		slot := C.int(n / 2)
		return &Error{Code: CodeUnimplemented, Function: C.GoString(C.tps_slot_name(slot)),
			RequiredMinor: int(C.tps_slot_minor(slot))}
	}
	s := C.tps_error_text(a.p, e)
	err := &Error{Code: int(C.tps_error_code(a.p, e)), Msg: C.GoStringN(s.p, C.int(s.n))}
	C.tps_error_destroy(a.p, e)
	return err
}

// LoadError reports that [Load] failed, and at which step.
type LoadError struct {
	// Step is "dlopen", "symbol" or "table".
	Step string
	// Msg describes the error.
	Msg string
}

// Error returns the step and the message.
func (e *LoadError) Error() string { return e.Step + ": " + e.Msg }

// Kind returns InternalError. Package pjrt determines the kind from the step.
func (*LoadError) Kind() errkind.Kind { return errkind.InternalError }

// Load loads a plugin library and returns its function table. It does not call functions of the
// table. The library is never unloaded.
func Load(path string) (*API, error) {
	// dlerror is kept per thread.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	name := C.CString(path)
	defer C.free(unsafe.Pointer(name))
	var msg *C.char
	lib := C.tps_open(name, &msg)
	if lib == nil {
		defer C.free(unsafe.Pointer(msg))
		return nil, &LoadError{"dlopen", C.GoString(msg)}
	}
	p := C.tps_api_of(lib, &msg)
	if p == nil {
		if msg == nil {
			return nil, &LoadError{"table", "GetPjrtApi returned nothing"}
		}
		defer C.free(unsafe.Pointer(msg))
		return nil, &LoadError{"symbol", C.GoString(msg)}
	}
	a := &API{p: (*C.tps_Api)(p), Path: path}
	if size := int(a.p.struct_size); size < int(unsafe.Sizeof(*a.p)) {
		return nil, &LoadError{"table", fmt.Sprintf("the function table is %d bytes, smaller than its own head", size)}
	}
	a.Major, a.Minor = int(a.p.pjrt_api_version.major_version), int(a.p.pjrt_api_version.minor_version)
	return a, nil
}

// Initialize initializes the plugin. It must be called once, before all other methods.
func (a *API) Initialize() error { return a.goError(C.tps_plugin_initialize(a.p)) }

// Extensions returns the type numbers of the plugin's extensions.
func (a *API) Extensions() []int {
	var types [64]C.int
	n := C.tps_extensions(a.p, &types[0], C.size_t(len(types)))
	out := make([]int, n)
	for i := range out {
		out[i] = int(types[i])
	}
	return out
}

// Function is an entry of the function table. Minor is the API minor version that introduced the
// entry. If Used is false, this package does not call the function, and Reason explains why.
type Function struct {
	Name   string
	Minor  int
	Used   bool
	Reason string
}

func Functions() []Function {
	out := make([]Function, C.TPS_SLOT_COUNT)
	for i := range out {
		s := C.int(i)
		out[i] = Function{Name: C.GoString(C.tps_slot_name(s)), Minor: int(C.tps_slot_minor(s)),
			Used: C.tps_slot_bound(s) != 0}
		if !out[i].Used {
			out[i].Reason = C.GoString(C.tps_slot_reason(s))
		}
	}
	return out
}

func goString(s C.tps_str) string { return C.GoStringN(s.p, C.int(s.n)) }

// goHandles copies a list of addresses from memory that the plugin owns.
func goHandles[T ~unsafe.Pointer](l C.tps_list) []T {
	out := make([]T, l.n)
	copy(out, unsafe.Slice((*T)(l.p), l.n))
	return out
}

// takeBytes copies the bytes that a C shim returned to Go memory and frees the C memory. If the
// shim returned an error e instead, takeBytes returns e as a Go error.
func (a *API) takeBytes(e unsafe.Pointer, b *C.tps_blob) ([]byte, error) {
	if e != nil {
		return nil, a.goError(e)
	}
	defer C.tps_blob_drop(b)
	return append([]byte(nil), unsafe.Slice((*byte)(unsafe.Pointer(b.p)), b.n)...), nil
}

// stringPointer returns the address of the bytes of s. It is valid only during a single C call.
func stringPointer(s string) *C.char { return (*C.char)(unsafe.Pointer(unsafe.StringData(s))) }

func bytesPointer(b []byte) *C.char { return (*C.char)(unsafe.Pointer(unsafe.SliceData(b))) }
