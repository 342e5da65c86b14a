// Package capi is the cgo half of the PJRT binding: one C shim per entry point of the plugin's
// function table, and Go functions over them that carry no C type. It checks nothing about
// lifetimes; package pjrt does.
//
// The C side declares the ABI itself (abi.h, slots.h). A test holds every offset against the
// official headers at hand, so that nothing of those headers has to be copied or present to build.
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

// Handles are addresses of the plugin's objects: C memory, never followed here.
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

// API is a loaded plugin's function table. The library is never unloaded, so an API is valid for
// the rest of the process. A method that has no doc of its own calls the entry point of its name,
// and returns what the plugin answers.
type API struct {
	p *C.tps_Api
	// Path is the library.
	Path string
	// Major and Minor are the version of the API that the plugin speaks.
	Major, Minor int
}

// MinMinor is the oldest API minor version supported: 0.57 settled the order of the function table.
const MinMinor = 57

// Error reports what a plugin answered, or a slot that the plugin lacks. Code is PJRT's. Of a
// missing slot, Slot is its name and Minor the API version that brought it; otherwise Msg is the
// plugin's message.
type Error struct {
	Code  int
	Msg   string
	Slot  string
	Minor int
}

// Error returns the plugin's message, or which slot is missing.
func (e *Error) Error() string {
	if e.Slot != "" {
		return fmt.Sprintf("PJRT_%s: not in this plugin, needs PJRT 0.%d", e.Slot, e.Minor)
	}
	return e.Msg
}

// Kind returns InternalError: package pjrt knows what the code means.
func (*Error) Kind() errkind.Kind { return errkind.InternalError }

// The codes of what is found here and not by the plugin: a missing slot, and no memory.
const (
	CodeResourceExhausted = 8
	CodeUnimplemented     = 12
)

// err turns what a shim returned into an error and frees it.
func (a *API) err(e unsafe.Pointer) error {
	if e == nil {
		return nil
	}
	return a.slowErr(e)
}

func (a *API) slowErr(e unsafe.Pointer) error {
	if n := uintptr(e); n&1 == 1 {
		slot := C.int(n / 2)
		return &Error{Code: CodeUnimplemented, Slot: C.GoString(C.tps_slot_name(slot)), Minor: int(C.tps_slot_minor(slot))}
	}
	s := C.tps_error_text(a.p, e)
	err := &Error{Code: int(C.tps_error_code(a.p, e)), Msg: C.GoStringN(s.p, C.int(s.n))}
	C.tps_error_destroy(a.p, e)
	return err
}

// LoadError says which step of loading a library failed.
type LoadError struct {
	// Step is "dlopen", "symbol" or "table".
	Step string
	// Msg is the loader's message.
	Msg string
}

// Error returns the step and the loader's message.
func (e *LoadError) Error() string { return e.Step + ": " + e.Msg }

// Kind returns InternalError: package pjrt knows what is wrong with the file.
func (*LoadError) Kind() errkind.Kind { return errkind.InternalError }

// Load maps a library and takes its function table, without calling into it otherwise. The library
// stays mapped for good.
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

// Initialize must be the first call into a plugin, made once.
func (a *API) Initialize() error { return a.err(C.tps_plugin_initialize(a.p)) }

// Extensions lists the type numbers of the plugin's extensions.
func (a *API) Extensions() []int {
	var types [64]C.int
	n := C.tps_extensions(a.p, &types[0], C.size_t(len(types)))
	out := make([]int, n)
	for i := range out {
		out[i] = int(types[i])
	}
	return out
}

// Slot is one entry of the function table: its name, the API version that brought it, and whether
// this package binds it. Reason says why not.
type Slot struct {
	Name   string
	Minor  int
	Bound  bool
	Reason string
}

// Slots lists the function table as this package knows it, in table order.
func Slots() []Slot {
	out := make([]Slot, C.TPS_SLOT_COUNT)
	for i := range out {
		s := C.int(i)
		out[i] = Slot{Name: C.GoString(C.tps_slot_name(s)), Minor: int(C.tps_slot_minor(s)), Bound: C.tps_slot_bound(s) != 0}
		if !out[i].Bound {
			out[i].Reason = C.GoString(C.tps_slot_reason(s))
		}
	}
	return out
}

func goString(s C.tps_str) string { return C.GoStringN(s.p, C.int(s.n)) }

// handles copies a list of addresses that the plugin owns.
func handles[T ~unsafe.Pointer](l C.tps_list) []T {
	out := make([]T, l.n)
	copy(out, unsafe.Slice((*T)(l.p), l.n))
	return out
}

// blob copies bytes out of an object of the plugin's and frees the object.
func (a *API) blob(e unsafe.Pointer, b *C.tps_blob) ([]byte, error) {
	if e != nil {
		return nil, a.err(e)
	}
	defer C.tps_blob_drop(b)
	return append([]byte(nil), unsafe.Slice((*byte)(unsafe.Pointer(b.p)), b.n)...), nil
}

// chars is the address of a string's bytes for the length of one call.
func chars(s string) *C.char { return (*C.char)(unsafe.Pointer(unsafe.StringData(s))) }

func bytesOf(b []byte) *C.char { return (*C.char)(unsafe.Pointer(unsafe.SliceData(b))) }
